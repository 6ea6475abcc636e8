// The form in which layers read a compressed parameter: rounded and masked. The graph computes this
// form in each pass (compressed_layers.h). At the end of a run, it is computed once more for the
// final weights. Pure values.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "config/run/bit_schedule.h"
#include "graph/rounding/rounding.h"

namespace dslaunch::graph {

// The rounding of a weight.
struct WeightRounding {
    Grid grid;  // bits and seed come from the schedule
    config::BitSchedule schedule;
    bool is_transposed = false;  // the weight is stored as [in, out]

    // Returns WEIGHT with the rounding that applies after UPDATES updates (-1: after the last
    // change). SEED is for random rounding. Returns WEIGHT itself if rounding has not begun yet.
    [[nodiscard]] at::Tensor of(const at::Tensor& weight, int64_t updates, uint64_t seed) const;
};

// The elements that share one bit of a mask.
enum class MaskSort : int64_t {
    kElements,  // the mask has the shape of the weight as [out, in]
    kRows,      // [out]
    kHeads      // [heads]: the weight's columns are divided equally
};

// The mask of a parameter.
struct WeightMask {
    MaskSort sort = MaskSort::kElements;
    bool is_learned = false;  // true: made from scores, a parameter; false: the mask is a buffer
    int source = -1;          // index of that parameter or buffer in the model
    double ratio = 1;         // the fraction of the elements that stays
    int64_t offset = 0;       // number of updates before the mask takes effect
    bool is_transposed = false;

    [[nodiscard]] bool is_on(int64_t updates) const { return updates < 0 || updates >= offset; }
    // Returns the mask. SOURCE is either the mask itself, or scores. In the second case, the mask
    // keeps the elements with the largest scores.
    [[nodiscard]] at::Tensor mask(const at::Tensor& source) const;
    // Returns MASK reshaped, so that VALUES can be multiplied by it. VALUES have the layout in
    // which the model stores the weight.
    [[nodiscard]] at::Tensor spread(const at::Tensor& mask, const at::Tensor& values) const;
};

// A dimension of a parameter or a buffer that a mask makes smaller.
struct Cut {
    bool is_buffer = false;
    int index = -1;  // in the model
    int64_t dim = 0;
};

// The tensors that become smaller if the elements that MASK hides are removed: a weight, its bias,
// and the modules that read its outputs or make its inputs.
struct Shrink {
    WeightMask mask;  // of rows or heads
    std::vector<Cut> cuts;
};

// A parameter that layers read in a compressed form. If is_rounded is true, it is rounded first.
// Then each of `masks` is applied.
struct CompressedParameter {
    int parameter = -1;  // index in the model
    bool is_rounded = false;
    WeightRounding rounding;
    std::vector<WeightMask> masks;

    // Returns VALUES of the parameter as its layers read them after UPDATES updates. SOURCE_OF
    // returns the source of a mask. SEED is for random rounding.
    [[nodiscard]] at::Tensor read(
        const at::Tensor& values, int64_t updates, uint64_t seed,
        const std::function<at::Tensor(const WeightMask&)>& source_of) const;
};

}  // namespace dslaunch::graph
