// Estimates what a pass over long samples costs from passes over shorter ones: a plan cannot run
// every pass that it is asked about. Data path: measured ModelInfo -> [here] -> plan. Pure.
#pragma once

#include <cstdint>
#include <span>

#include "plan/model/model_info.h"

namespace dslaunch::plan {

// A measured pass over a micro batch of one sample.
struct MeasuredPass {
    int64_t tokens = 0;  // in the sample
    double seconds = 0;
    ModelInfo info;
};

// The size of a micro batch.
struct PassSize {
    int64_t rows = 1;
    int64_t tokens = 0;  // in each sample
};

// The time and the memory of a pass.
struct PassCost {
    double seconds = 0;
    Bytes bytes;  // the most that tensors take at once, without parameters
};

// Returns the memory that a pass measured as INFO takes at once, without parameters: the inputs,
// outputs and temporary tensors of the segment that needs the most.
[[nodiscard]] Bytes pass_bytes(const ModelInfo& info);

// Returns the cost of a pass of SIZE. Time and memory of a sample are polynomials of second degree
// in its tokens, since attention may compare all pairs of tokens; they go through the last three
// PASSES, and no coefficient is negative. REQUIRES: three PASSES or more, of growing length.
[[nodiscard]] PassCost cost_of_pass(std::span<const MeasuredPass> passes, PassSize size);

// Returns what a measurement of a pass of SIZE would find, estimated like cost_of_pass().
// REQUIRES: as for cost_of_pass(), and all passes have the same segments.
[[nodiscard]] ModelInfo info_of_pass(std::span<const MeasuredPass> passes, PassSize size);

}  // namespace dslaunch::plan
