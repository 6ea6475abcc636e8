#include "storage/files/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/fd.h"
#include "base/text/file_faults.h"
#include "storage/files/mapped_fault.h"

namespace dslaunch::storage {

namespace {

uintptr_t page_bytes() {
    static const auto bytes = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
    return bytes;
}

// The addresses of the whole pages inside PART.
struct Pages {
    explicit Pages(std::span<const std::byte> part)
        : begin((reinterpret_cast<uintptr_t>(part.data()) + page_bytes() - 1) / page_bytes() *
                page_bytes()),
          end(reinterpret_cast<uintptr_t>(part.data() + part.size()) / page_bytes() *
              page_bytes()) {}
    uintptr_t begin;
    uintptr_t end;  // may be before begin: no whole page
};

void drop(uintptr_t begin, uintptr_t end) {
    // If this fails, the pages stay in memory, which does no other harm.
    if (begin < end) (void)::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

// Returns true if ENTRY of /proc/self/pagemap says that the page is in memory and still belongs to
// the file. A written page does not belong to it any more.
bool unwritten(uint64_t entry) {
    constexpr uint64_t kPresent = uint64_t{1} << 63;
    constexpr uint64_t kOfFile = uint64_t{1} << 61;
    return (entry & kPresent) != 0 && (entry & kOfFile) != 0;
}

// Returns ": give a file in it, such as FOLDER/rows.safetensors", with the first of FOLDER's files
// that may be meant; or "".
std::string file_in(const std::string& folder) {
    std::vector<std::string> names;
    std::error_code unreadable;
    for (const auto& entry : std::filesystem::directory_iterator(folder, unreadable)) {
        const std::string ending = entry.path().extension().string();
        if (ending == ".safetensors" || ending == ".tokens" || ending == ".npy" || ending == ".bin")
            names.push_back(entry.path().string());
    }
    const auto first = std::ranges::min_element(names);
    return first == names.end() ? ""
                                : fmt::format(": give a file in it, such as {}", printable(*first));
}

}  // namespace

MappedFile::MappedFile(const std::string& path, MapMode mode) : path_(path) {
    // O_NONBLOCK: opening a FIFO must not wait for a writer; it is refused below.
    const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    if (!fd.valid()) {
        const int cause = errno;
        fail(ExitCode::kInput, "{}: cannot open: {}{}", path, errno_text(cause),
             cause == ENOENT ? near_file_text(path) : "");
    }
    struct stat info {};
    if (::fstat(fd.get(), &info) != 0)
        fail(ExitCode::kInput, "{}: cannot read its size: {}", path, errno_text(errno));
    if (!S_ISREG(info.st_mode))
        fail(ExitCode::kInput, "{}: {}", path,
             S_ISDIR(info.st_mode) ? "is a folder, but a file is expected" + file_in(path)
                                   : "not a regular file");
    if (info.st_size == 0) return;
    const auto length = static_cast<size_t>(info.st_size);
    const bool writable = mode == MapMode::kCopyOnWrite;
    void* start = ::mmap(nullptr, length, writable ? PROT_READ | PROT_WRITE : PROT_READ,
                         writable ? MAP_PRIVATE | MAP_NORESERVE : MAP_SHARED, fd.get(), 0);
    if (start == MAP_FAILED)
        fail(ExitCode::kInput, "{}: cannot map {} bytes: {}", path, length, errno_text(errno));
    bytes_ = {static_cast<const std::byte*>(start), length};
    watch_mapping(bytes_, path, ExitCode::kInput);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)), bytes_(std::exchange(other.bytes_, {})) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
    std::swap(path_, other.path_);
    std::swap(bytes_, other.bytes_);
    return *this;
}

MappedFile::~MappedFile() {
    if (bytes_.empty()) return;
    unwatch_mapping(bytes_);
    ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

Bytes MappedFile::release_unwritten(std::span<const std::byte> part) const {
    const Pages pages(part);
    const UniqueFd pagemap(::open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC));
    if (!pagemap.valid()) return Bytes{0};
    Bytes released{0};
    std::array<uint64_t, 512> entries{};
    for (uintptr_t at = pages.begin; at < pages.end;) {
        const uintptr_t count = std::min((pages.end - at) / page_bytes(), entries.size());
        const auto wanted = static_cast<ssize_t>(count * sizeof(uint64_t));
        const auto place = static_cast<off_t>(at / page_bytes() * sizeof(uint64_t));
        if (::pread(pagemap.get(), entries.data(), static_cast<size_t>(wanted), place) != wanted)
            break;
        for (size_t i = 0; i < count;) {
            const size_t first = i;
            while (i < count && unwritten(entries[i])) ++i;
            drop(at + first * page_bytes(), at + i * page_bytes());
            released += Bytes{static_cast<int64_t>((i - first) * page_bytes())};
            if (i < count) ++i;
        }
        at += count * page_bytes();
    }
    return released;
}

void MappedFile::discard(std::span<const std::byte> part) const {
    const Pages pages(part);
    drop(pages.begin, pages.end);
}

}  // namespace dslaunch::storage
