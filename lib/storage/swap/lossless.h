// The lossless coder puts bytes into fewer bytes, and back: zstd at its fastest level. Data path:
// chunk codec -> lossless coder -> extents. Threads: one at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace dslaunch::storage {

class LosslessCoder {
  public:
    LosslessCoder();
    LosslessCoder(const LosslessCoder&) = delete;
    LosslessCoder& operator=(const LosslessCoder&) = delete;
    ~LosslessCoder();

    // Returns the bytes written to INTO; 0: they would not fit there.
    [[nodiscard]] int64_t compress(std::span<const std::byte> from, std::span<std::byte> into);
    // REQUIRES: compress() made FROM of as many bytes as INTO has.
    void expand(std::span<const std::byte> from, std::span<std::byte> into);

  private:
    struct Contexts;
    std::unique_ptr<Contexts> contexts_;
};

}  // namespace dslaunch::storage
