#include "launcher/jobs/file_lines.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <string_view>

namespace dslaunch::launcher {
namespace {

constexpr size_t kReadBytes = 64U << 10;

// Returns BYTES of FILE from offset AT, or less if the file ends before.
std::string read_part(int file, int64_t at, int64_t bytes) {
    std::string text(static_cast<size_t>(bytes), '\0');
    size_t got = 0;
    while (got < text.size()) {
        const ssize_t n =
            ::pread(file, text.data() + got, text.size() - got, at + static_cast<int64_t>(got));
        if (n <= 0) break;
        got += static_cast<size_t>(n);
    }
    text.resize(got);
    return text;
}

}  // namespace

std::optional<std::string> read_file_ends(const std::string& path, const FileEnds& ends) {
    const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    struct stat info {};
    if (!file.valid() || ::fstat(file.get(), &info) != 0) return std::nullopt;
    std::string text;
    if (info.st_size <= ends.first_bytes + ends.last_bytes) {
        text = read_part(file.get(), 0, info.st_size);
    } else {
        text = read_part(file.get(), 0, ends.first_bytes);
        text.erase(text.rfind('\n') + 1);
        // Also reads the byte before the last part: if it is a newline, the part begins with a
        // whole line.
        const int64_t before = info.st_size - ends.last_bytes - 1;
        const std::string tail = read_part(file.get(), before, ends.last_bytes + 1);
        if (const size_t newline = tail.find('\n'); newline != tail.npos)
            text.append(tail, newline + 1);
    }
    if (!ends.keeps_partial) text.erase(text.rfind('\n') + 1);
    return text;
}

std::string GrowingFile::read_new(bool end) {
    std::string lines;
    for (;;) {
        if (!file_.valid()) file_.reset(::open(path_.c_str(), O_RDONLY | O_CLOEXEC));
        if (!file_.valid()) return lines;
        char block[kReadBytes];
        const ssize_t n = ::read(file_.get(), block, sizeof block);
        if (n > 0) {
            lines += splitter_.add(std::string_view(block, static_cast<size_t>(n)));
        } else if (!was_replaced()) {
            return end ? lines + splitter_.finish() : lines;
        } else {
            file_.reset();
        }
    }
}

bool GrowingFile::was_replaced() const {
    struct stat open {
    }, named{};
    return ::fstat(file_.get(), &open) == 0 && ::stat(path_.c_str(), &named) == 0 &&
           (open.st_ino != named.st_ino || open.st_dev != named.st_dev);
}

}  // namespace dslaunch::launcher
