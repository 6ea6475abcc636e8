// Looks for NaN and infinity in bytes that come split anywhere. One owner.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/kinds/dtype.h"

namespace dslaunch::storage {

class FiniteScan {
  public:
    // A scan of integers finds all finite.
    explicit FiniteScan(DType dtype);
    void add(std::span<const std::byte> bytes);
    // True while all whole elements so far are finite.
    [[nodiscard]] bool finite() const { return !found_; }

  private:
    void look(std::span<const std::byte> elements);

    size_t element_bytes_ = 0;  // 0: nothing to look for
    uint64_t exponent_ = 0;     // all its bits set: NaN or infinity
    bool found_ = false;
    std::array<std::byte, 8> begun_{};  // an element that is split
    size_t begun_bytes_ = 0;
};

}  // namespace dslaunch::storage
