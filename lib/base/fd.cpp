#include "base/fd.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "base/error.h"
#include "base/text_bytes.h"

namespace dslaunch {

void UniqueFd::reset(int fd) {
    if (fd_ >= 0) ::close(fd_);
    fd_ = fd;
}

Pipe make_pipe() {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0)
        fail(ExitCode::kSetup, "cannot make a pipe: {}; raise the limit of open files (ulimit -n)",
             errno_text(errno));
    return {UniqueFd(ends[0]), UniqueFd(ends[1])};
}

ssize_t read_full(int fd, std::span<std::byte> into) {
    size_t done = 0;
    while (done < into.size()) {
        const ssize_t n = ::read(fd, into.data() + done, into.size() - done);
        if (n == 0) break;
        if (n > 0) {
            done += static_cast<size_t>(n);
        } else if (errno != EINTR) {
            return -errno;
        }
    }
    return static_cast<ssize_t>(done);
}

int write_full(int fd, std::span<const std::byte> from) {
    size_t done = 0;
    while (done < from.size()) {
        const ssize_t n = ::write(fd, from.data() + done, from.size() - done);
        if (n >= 0) {
            done += static_cast<size_t>(n);
        } else if (errno != EINTR) {
            return -errno;
        }
    }
    return 0;
}

int write_full(int fd, std::string_view from) {
    return write_full(fd, bytes_in(from));
}

std::string read_file(const std::string& path, size_t bytes_max) {
    UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (!file.valid()) fail(ExitCode::kInput, "{}: cannot be opened: {}", path, errno_text(errno));
    std::string content;
    std::byte block[65536];
    for (;;) {
        const ssize_t n = read_full(file.get(), block);
        if (n < 0)
            fail(ExitCode::kInput, "{}: cannot be read: {}", path,
                 errno_text(static_cast<int>(-n)));
        if (n == 0) return content;
        content.append(reinterpret_cast<const char*>(block), static_cast<size_t>(n));
        if (content.size() > bytes_max)
            fail(ExitCode::kInput,
                 "{}: is larger than {} bytes, the largest size that is accepted here", path,
                 bytes_max);
    }
}

}  // namespace dslaunch
