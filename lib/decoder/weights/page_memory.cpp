#include "decoder/weights/page_memory.h"

#include <sys/mman.h>

#include <cerrno>
#include <utility>

#include "base/bytes.h"
#include "base/error.h"

namespace dslaunch::decoder {

namespace {

constexpr int64_t kLargePage = int64_t{2} << 20;

}  // namespace

PageMemory::PageMemory(int64_t bytes, const char* use) {
    if (bytes == 0) return;
    void* address = ::mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (address == MAP_FAILED)
        fail(ExitCode::kSetup, "cannot allocate {} for {}: {}", to_text(Bytes{bytes}), use,
             errno_text(errno));
    // On a system without large pages this fails, and small pages are used.
    if (bytes >= kLargePage) ::madvise(address, static_cast<size_t>(bytes), MADV_HUGEPAGE);
    bytes_ = {static_cast<std::byte*>(address), static_cast<size_t>(bytes)};
}

PageMemory::PageMemory(PageMemory&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}

PageMemory& PageMemory::operator=(PageMemory&& other) noexcept {
    std::swap(bytes_, other.bytes_);
    return *this;
}

PageMemory::~PageMemory() {
    if (!bytes_.empty()) ::munmap(bytes_.data(), bytes_.size());
}

}  // namespace dslaunch::decoder
