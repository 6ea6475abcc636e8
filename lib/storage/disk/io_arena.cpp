#include "storage/disk/io_arena.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstdint>
#include <new>

#include "base/check.h"

namespace dslaunch::storage {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;

// Maps a range of LENGTH that begins at a multiple of kHugePage.
std::byte* map_aligned(size_t length) {
    void* const all = ::mmap(nullptr, length + kHugePage, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (all == MAP_FAILED) throw std::bad_alloc();
    auto* const begin = static_cast<std::byte*>(all);
    const size_t before = (kHugePage - reinterpret_cast<uintptr_t>(all) % kHugePage) % kHugePage;
    if (before > 0) ::munmap(begin, before);
    ::munmap(begin + before + length, kHugePage - before);
    return begin + before;
}

}  // namespace

IoArena::IoArena(Bytes length) {
    DSL_CHECK(length.value > 0, "an arena cannot have {} bytes", length.value);
    const auto whole = static_cast<size_t>(round_up(length.value, static_cast<int64_t>(kHugePage)));
    std::byte* const begin = map_aligned(whole);
    // A refusal (no transparent huge pages) only makes transfers slower.
    (void)::madvise(begin, whole, MADV_HUGEPAGE);
    const int status = ::madvise(begin, whole, MADV_POPULATE_WRITE) == 0 ? 0 : errno;
    if (status != 0 && status != EINVAL) {
        ::munmap(begin, whole);
        throw std::bad_alloc();
    }
    bytes_ = {begin, static_cast<size_t>(length.value)};
    for (size_t at = 0; status == EINVAL && at < whole; at += 4096)  // before Linux 5.14
        begin[at] = std::byte{0};
}

IoArena::~IoArena() {
    if (bytes_.empty()) return;
    const auto whole =
        round_up(static_cast<int64_t>(bytes_.size()), static_cast<int64_t>(kHugePage));
    ::munmap(bytes_.data(), static_cast<size_t>(whole));
}

}  // namespace dslaunch::storage
