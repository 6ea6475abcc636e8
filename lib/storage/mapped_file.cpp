#include "storage/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <utility>

#include "base/error.h"
#include "base/fd.h"

namespace dslaunch {

MappedFile::MappedFile(const std::string& path) : path_(path) {
    // O_NONBLOCK: opening a FIFO must not wait for a writer; it is refused below.
    const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    if (!fd.valid()) fail(ExitCode::kInput, "{}: cannot open: {}", path, errno_text(errno));
    struct stat info {};
    if (::fstat(fd.get(), &info) != 0)
        fail(ExitCode::kInput, "{}: cannot read its size: {}", path, errno_text(errno));
    if (!S_ISREG(info.st_mode)) fail(ExitCode::kInput, "{}: not a regular file", path);
    if (info.st_size == 0) return;
    const auto length = static_cast<size_t>(info.st_size);
    void* start = ::mmap(nullptr, length, PROT_READ, MAP_SHARED, fd.get(), 0);
    if (start == MAP_FAILED)
        fail(ExitCode::kInput, "{}: cannot map {} bytes: {}", path, length, errno_text(errno));
    bytes_ = {static_cast<const std::byte*>(start), length};
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)), bytes_(std::exchange(other.bytes_, {})) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
    std::swap(path_, other.path_);
    std::swap(bytes_, other.bytes_);
    return *this;
}

MappedFile::~MappedFile() {
    if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

}  // namespace dslaunch
