// Memory that disks read into and write from: aligned, present from the start, in huge pages if the
// kernel gives them. A transfer then has few pieces of memory instead of one every 4 KiB, which
// would cost a third of the processor time.
#pragma once

#include <cstddef>
#include <span>
#include <utility>

#include "base/bytes.h"

namespace dslaunch::storage {

class IoArena {
  public:
    IoArena() = default;
    // Maps LENGTH zero bytes, private to this process. Throws std::bad_alloc. Blocks while the
    // pages are made, some 40 ms a GiB in huge pages.
    explicit IoArena(Bytes length);
    IoArena(IoArena&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}
    IoArena& operator=(IoArena&& other) noexcept {
        std::swap(bytes_, other.bytes_);
        return *this;
    }
    ~IoArena();

    [[nodiscard]] std::span<std::byte> bytes() const { return bytes_; }

  private:
    std::span<std::byte> bytes_;
};

}  // namespace dslaunch::storage
