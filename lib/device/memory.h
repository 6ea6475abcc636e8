// Memory of a device, with its owner. On the host it is memory like any other. On a GPU the host
// may pass its addresses on and must not read or write there. Threads: as any array.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <utility>

namespace dslaunch::device {

class Memory {
  public:
    Memory() = default;
    // GIVE_BACK frees BYTES, once.
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

    [[nodiscard]] std::span<std::byte> bytes() const { return bytes_; }
    // Returns the same as fp32. REQUIRES: it was taken for that.
    [[nodiscard]] std::span<float> floats() const {
        return {reinterpret_cast<float*>(bytes_.data()), bytes_.size() / sizeof(float)};
    }

  private:
    std::span<std::byte> bytes_;
    std::function<void()> give_back_;
};

}  // namespace dslaunch::device
