// The lossless coder compresses bytes and expands them again: zstd at its fastest level. Data path:
// chunk codec -> lossless coder -> extents. Threads: one at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace dslaunch::storage {

// A coder that uses zstd and reuses zstd's memory in each call.
class LosslessCoder {
  public:
    LosslessCoder();
    LosslessCoder(const LosslessCoder&) = delete;
    LosslessCoder& operator=(const LosslessCoder&) = delete;
    ~LosslessCoder();

    // Returns the number of bytes written to INTO; 0 if they would not fit.
    [[nodiscard]] int64_t compress(std::span<const std::byte> from, std::span<std::byte> into);
    // Expands FROM into INTO. REQUIRES: FROM is a result of compress(), and INTO has the length of
    // the original bytes.
    void expand(std::span<const std::byte> from, std::span<std::byte> into);

  private:
    struct Contexts;
    std::unique_ptr<Contexts> contexts_;
};

}  // namespace dslaunch::storage
