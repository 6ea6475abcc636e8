// The places of a rank's share of a parameter within the whole parameter. Checkpoints store whole
// parameters; tensor ranks hold shares of them. Data path: tensor plan -> [here] -> saved pieces,
// saved state. Pure.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "base/range.h"
#include "plan/tensor/tensor_plan.h"

namespace dslaunch::plan {

// The share of PARAMETER that rank PART.index holds. Positions are element numbers, row-major in
// both the share and the whole parameter.
class TensorShare {
  public:
    // REQUIRES: the parameter is split between tensor ranks.
    TensorShare(const TensorParameter& parameter, PartOf part);

    // Returns the number of elements of the share.
    [[nodiscard]] int64_t numel() const { return outer_ * share_row_; }
    // Divides the share's ELEMENTS into pieces that are also contiguous in the whole parameter, and
    // calls USE for each piece in order. BEGIN is the piece's first element within the share.
    using Use = std::function<void(int64_t begin, const Range& in_whole)>;
    void for_each(const Range& elements, const Use& use) const;

  private:
    // A piece of one row. A row consists of all elements with the same indices in the dimensions
    // before the split dimension.
    struct Piece {
        int64_t begin = 0;  // element in the share's row
        Range in_whole;     // elements in the whole parameter's row
    };
    std::vector<Piece> pieces_;
    int64_t outer_ = 1;      // number of rows
    int64_t share_row_ = 0;  // elements of a row of the share
    int64_t whole_row_ = 0;
};

}  // namespace dslaunch::plan
