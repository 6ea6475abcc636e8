// Fresh pages from the system: zeros, aligned to a page, with large pages if there are some. For
// weights and for the cache of keys and values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace dslaunch::decoder {

// Owns the pages; returns them to the system when it is destroyed.
class PageMemory {
  public:
    PageMemory() = default;
    // A page takes memory only once it is written. Throws Error{kSetup} that names BYTES and USE if
    // there is no room for them.
    PageMemory(int64_t bytes, const char* use);
    PageMemory(PageMemory&& other) noexcept;
    PageMemory& operator=(PageMemory&& other) noexcept;
    ~PageMemory();

    // Return the memory: valid until this object is assigned to or destroyed.
    [[nodiscard]] std::span<std::byte> bytes() { return bytes_; }
    [[nodiscard]] std::span<const std::byte> bytes() const { return bytes_; }

  private:
    std::span<std::byte> bytes_;
};

}  // namespace dslaunch::decoder
