// The operators that compression puts into a graph. Each operator returns its first argument
// changed, and passes gradients straight through, as in DeepSpeed: rounding does not change a
// gradient, and a mask masks it. compressed_layers.h inserts them. Threads: any.
#pragma once

#include "graph/nodes/names.h"
#include "graph/rounding/compressed_parameter.h"

namespace dslaunch::graph {

// Registers the operators with TorchScript, once.
void register_compression_operators();

// Returns the seed for the random rounding of the parameter with the number SALT, after UPDATES
// updates of a run with SEED.
[[nodiscard]] uint64_t rounding_seed(uint64_t seed, int64_t updates, int64_t salt);

// Each function below adds a node at the insert point of GRAPH and returns its output.

// Rounds WEIGHT. SALT: the parameter's number, for random rounding.
Value* insert_rounding(Graph& graph, Value* weight, const WeightRounding& rounding, int64_t salt);
// Masks VALUES with SOURCE: bools, or scores that are trained.
Value* insert_mask(Graph& graph, Value* values, Value* source, const WeightMask& mask);

// Rounding of activations.
struct ActivationRounding {
    int64_t bits = 8;
    bool is_symmetric = true;
    bool is_by_sample = false;  // each sample has a range of its own; false: each row of the last
                                // dimension
    int64_t offset = 0;         // number of updates before rounding begins
    bool moves_range = false;   // true: each batch moves a static range
};
Value* insert_rounding(Graph& graph, Value* values, const ActivationRounding& rounding);
// Rounds VALUES within RANGE, [2] fp32: the smallest and the largest value, averaged over earlier
// batches. If both are equal, no batch has set the range yet, and VALUES are not rounded.
Value* insert_rounding(Graph& graph, Value* values, Value* range,
                       const ActivationRounding& rounding);

}  // namespace dslaunch::graph
