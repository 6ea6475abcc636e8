// New pages from the system for weights and for the cache of keys and values. They contain zeros,
// and are large pages if the system has some.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace dslaunch::decoder {

// The owner of the pages. It returns the pages to the system when it is destroyed.
class PageMemory {
  public:
    PageMemory() = default;
    // Allocates BYTES; a page takes memory only after the first write to it. Throws Error{kSetup}
    // that names BYTES and USE if the allocation fails.
    PageMemory(int64_t bytes, const char* use);
    PageMemory(PageMemory&& other) noexcept;
    PageMemory& operator=(PageMemory&& other) noexcept;
    ~PageMemory();

    // Return the memory, which is valid until this object is assigned to or destroyed.
    [[nodiscard]] std::span<std::byte> bytes() { return bytes_; }
    [[nodiscard]] std::span<const std::byte> bytes() const { return bytes_; }

  private:
    std::span<std::byte> bytes_;
};

}  // namespace dslaunch::decoder
