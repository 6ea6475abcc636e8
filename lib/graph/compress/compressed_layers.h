// Weights in few bits, activations in few bits, and masks, as nodes of a lowered graph: each read
// of a weight by a layer becomes a read of the rounded and masked weight, whose gradient goes to
// the weight unchanged (straight through). Bits depend on the number of updates (DrawKey::updates).
// Data path: lower.h -> [here] -> cuts, segments; at the end of a run -> final weights. No shared
// state.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "config/run/compression_config.h"
#include "graph/archive/model.h"
#include "graph/lowered/lowered_graph.h"
#include "graph/rounding/compressed_parameter.h"

namespace dslaunch::graph {

// Settings of compress_layers().
struct CompressOptions {
    config::CompressionConfig config;
    uint64_t seed = 0;   // for random rounding and new scores
    bool trains = true;  // false: ranges of activations stay as they are
};

// Rewrites LOWERED, a graph of MODEL, and records the changes of its parameters in
// LOWERED.compressed. Adds to MODEL: masks of its current weights, as buffers; scores to train, as
// parameters; and ranges of activations, as buffers. Masks, scores and ranges that already exist
// are used. Throws Error{kConfig} if a module pattern matches no layer of the right sort, if two
// groups of a method contain the same layer, or if a weight or a related module does not have the
// sizes that a method needs.
void compress_layers(Model& model, LoweredGraph& lowered, const CompressOptions& options);

// Returns a fingerprint of the masks in LOWERED that were computed from MODEL's initial weights; ""
// if there are no masks. Runs with different fingerprints train different models.
[[nodiscard]] std::string fingerprint_of_masks(const Model& model, const LoweredGraph& lowered);

}  // namespace dslaunch::graph
