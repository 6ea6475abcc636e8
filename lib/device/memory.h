// Memory of a device, and the function that frees it. The memory of the host device is ordinary
// memory. The host may pass on addresses in a GPU's memory, but must not read or write there.
// Threads: as for any array.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <utility>

namespace dslaunch::device {

// The owner of memory of a device. An object that was default-constructed or moved from is empty.
class Memory {
  public:
    Memory() = default;
    // GIVE_BACK is called once, to free BYTES.
    Memory(std::span<std::byte> bytes, std::function<void()> give_back)
        : bytes_(bytes), give_back_(std::move(give_back)) {}
    Memory(Memory&& other) noexcept
        : bytes_(std::exchange(other.bytes_, {})),
          give_back_(std::exchange(other.give_back_, nullptr)) {}
    Memory& operator=(Memory&& other) noexcept {
        std::swap(bytes_, other.bytes_);
        std::swap(give_back_, other.give_back_);
        return *this;
    }
    Memory(const Memory&) = delete;
    Memory& operator=(const Memory&) = delete;
    ~Memory() {
        if (give_back_) give_back_();
    }

    // Returns the whole memory.
    [[nodiscard]] std::span<std::byte> bytes() const { return bytes_; }
    // Returns the same memory as fp32. REQUIRES: it was allocated for fp32 values.
    [[nodiscard]] std::span<float> floats() const {
        return {reinterpret_cast<float*>(bytes_.data()), bytes_.size() / sizeof(float)};
    }

  private:
    std::span<std::byte> bytes_;
    std::function<void()> give_back_;
};

}  // namespace dslaunch::device
