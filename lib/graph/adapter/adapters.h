// Low-rank adapters (LoRA, arXiv:2106.09685) in a lowered graph. A linear layer multiplies its
// input by its weight W; an adapter adds the product of the same input with B A. A and B are small
// and trained; W is not trained. Data path: lower.h -> [here] -> cuts, segments. No shared state.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "config/run/lora_config.h"
#include "graph/archive/model.h"
#include "graph/lowered/lowered_graph.h"
#include "storage/adapter/adapter_config.h"

namespace dslaunch::graph {

// The adapters to add.
struct AdapterOptions {
    config::LoraConfig lora;
    uint64_t seed = 0;   // for the first values of new adapters
    bool trains = true;  // false: no dropout
};

// Adds an adapter to every linear layer of LOWERED that OPTIONS name, and freezes all parameters
// except adapters and modules_to_save. For each such layer, adds two fp32 parameters to MODEL: A
// [r, in] as LAYER.lora_A.weight, and B [out, r] as LAYER.lora_B.weight. Parameters that already
// exist keep their values. New parameters start as in PEFT (A uniform within 1 / sqrt(in) of zero,
// B zeros), or with the values of the adapter in the folder OPTIONS.lora.init. Throws
// Error{kConfig} if a pattern fits no layer, or if the folder's adapter has a different scale than
// the config. Throws Error{kInput} if the folder's adapter has different layers or a different
// rank.
void add_adapters(Model& model, LoweredGraph& lowered, const AdapterOptions& options);

// Returns the facts about MODEL's adapters for adapter_config.json. REQUIRES: add_adapters() was
// called.
[[nodiscard]] storage::AdapterConfig describe_adapters(const Model& model,
                                                       const config::LoraConfig& lora);

// Returns a fingerprint of MODEL's frozen weights, which the checkpoints of adapters do not
// contain. The fingerprint has 16 hex digits. It depends on the name, the sizes and 16 evenly
// spaced elements of each frozen parameter. Reads only a few pages of each parameter. REQUIRES: the
// parameters have the values that they were loaded with.
[[nodiscard]] std::string base_fingerprint(const Model& model);

}  // namespace dslaunch::graph
