// The memory that compressing a folder layer by layer takes, and the portions of a layer whose
// moments fit in it together. Data path: a folder's config and tensor sizes, texts -> [here] ->
// compressed_folder.h, before it begins. Pure.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/machine/memory_limits.h"
#include "base/range.h"
#include "storage/huggingface/transformer_switches.h"

namespace dslaunch::compress {

// A weight that is rounded. Weights of a layer with the same `input` read the same rows, and follow
// each other.
struct WeightSize {
    std::string name;
    int64_t out = 0, in = 0;
    int64_t input = 0;
};
using LayerSizes = std::vector<WeightSize>;

// The size of the texts while they go through a layer; all zeros if there are no texts.
struct WalkSize {
    int64_t tokens = 0;     // of all texts
    int64_t rows_max = 0;   // of the largest batch
    int64_t pages = 0;      // of its keys and values
    int64_t text_max = 0;   // tokens of the longest text
    bool descends = false;  // true: the rounding is improved by a descent
};

// Bytes by their use. An estimate; the mapped files are not counted.
struct MemoryNeed {
    Bytes texts;     // the hidden rows of all texts
    Bytes weights;   // of a layer, rounded, until its file is written
    Bytes moments;   // of the inputs of a portion of a layer
    Bytes pass;      // activations, keys and values of a batch in a layer
    Bytes rounding;  // of one weight, with the squares of its inputs
    Bytes descent;   // of a layer's weights, gradients and activations; 0 if there is none
    Bytes spare;     // a fifth of all but the moments: freed blocks that the allocator keeps

    // Returns the most memory that is in use at one time. Only one of `pass`, `rounding` and
    // `descent` is in use at a time, and the moments are not in use during a descent.
    [[nodiscard]] Bytes total() const {
        return texts + weights + std::max(moments + std::max(pass, rounding), descent) + spare;
    }
};

// A plan that fits.
struct MemoryPlan {
    MemoryNeed need;
    Bytes largest_layer;  // its rounded weights as the folder stores them
    Bytes moments_max;    // the most that the moments of a portion may take
    int64_t passes = 1;   // of the texts through the layer with the most portions, to observe it
};

// Divides the weights of LAYER into portions, in their order. Weights with the same input stay
// together. A portion's moments take at most MOMENTS_MAX, unless they are the moments of one input.
[[nodiscard]] std::vector<Range> portions_of(const LayerSizes& layer, Bytes moments_max);

// Plans the memory for LAYERS; without layers, for texts that only pass through the model. LIMIT:
// the memory that may be used; if it is not set, there is no limit. A layer whose moments do not
// fit into memory together is divided into portions. Throws Error{kSetup}, which says what needs
// the memory, if not even the moments of one input fit.
[[nodiscard]] MemoryPlan plan_memory(const storage::TransformerConfig& config,
                                     std::span<const LayerSizes> layers, const WalkSize& texts,
                                     const std::optional<MemoryLimit>& limit);

}  // namespace dslaunch::compress
