// The places of a rank's share of a parameter in the whole: checkpoints hold whole parameters,
// tensor ranks their shares. Data path: tensor plan -> [here] -> saved pieces, saved state.
// Pure.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "base/range.h"
#include "plan/tensor/tensor_plan.h"

namespace dslaunch::plan {

// Rank PART.index's share of PARAMETER in numbers of elements, both row-major.
class TensorShare {
  public:
    // REQUIRES: the parameter is split.
    TensorShare(const TensorParameter& parameter, PartOf part);

    [[nodiscard]] int64_t numel() const { return outer_ * share_row_; }
    // Calls USE for each piece of the share's ELEMENTS that is also contiguous in the whole, in
    // order. BEGIN counts the share's elements.
    using Use = std::function<void(int64_t begin, const Range& in_whole)>;
    void for_each(const Range& elements, const Use& use) const;

  private:
    // A piece of one row; a row has all elements with the same indices in the dimensions before the
    // split one.
    struct Piece {
        int64_t begin = 0;  // in the share's row
        Range in_whole;     // in the whole's row
    };
    std::vector<Piece> pieces_;
    int64_t outer_ = 1;      // rows
    int64_t share_row_ = 0;  // elements of a row of the share
    int64_t whole_row_ = 0;
};

}  // namespace dslaunch::plan
