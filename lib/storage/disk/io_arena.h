// Memory for reading from and writing to disks: aligned, resident from the start, and in huge pages
// if the kernel provides them. A transfer then consists of a few large pieces of memory. With
// pieces of 4 KiB, transfers would take up to a third of the processor time.
#pragma once

#include <cstddef>
#include <span>
#include <utility>

#include "base/bytes.h"

namespace dslaunch::storage {

// The owner of one range of memory, which may be empty.
class IoArena {
  public:
    IoArena() = default;
    // Maps LENGTH zero bytes, private to this process. Throws std::bad_alloc. Blocks while the
    // kernel allocates the pages, about 40 ms per GiB with huge pages.
    explicit IoArena(Bytes length);
    IoArena(IoArena&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}
    IoArena& operator=(IoArena&& other) noexcept {
        std::swap(bytes_, other.bytes_);
        return *this;
    }
    ~IoArena();

    // Returns the memory. It has the length that the constructor got, and begins at a multiple of
    // kBlockAlignment.
    [[nodiscard]] std::span<std::byte> bytes() const { return bytes_; }

  private:
    std::span<std::byte> bytes_;
};

}  // namespace dslaunch::storage
