// Low-rank adapters (LoRA, arXiv:2106.09685) in a lowered graph: beside the product of a linear
// layer with its weight W runs a product with B A, which are small and train while W does not. Data
// path: lower.h -> [here] -> cuts, segments. No shared state.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "config/run/lora_config.h"
#include "graph/archive/model.h"
#include "graph/lowered/lowered_graph.h"
#include "storage/adapter/adapter_config.h"

namespace dslaunch::graph {

struct AdapterOptions {
    config::LoraConfig lora;
    uint64_t seed = 0;     // of new adapters
    bool training = true;  // false: no dropout
};

// Adds an adapter to every linear layer of LOWERED that OPTIONS name, and freezes all parameters
// except adapters and modules_to_save. A layer's parameters A [r, in] and B [out, r] are
// LAYER.lora_A.weight and LAYER.lora_B.weight of MODEL, in fp32. Parameters that already exist stay
// as they are. New ones begin as PEFT's do: A uniform below 1 / sqrt(in), B zeros; or as
// OPTIONS.lora.init has them. Throws Error{kInput} for a pattern that fits no layer, an adapter of
// other layers or another rank.
void add_adapters(Model& model, LoweredGraph& lowered, const AdapterOptions& options);

// Returns adapter_config.json's facts about MODEL's adapters. REQUIRES: add_adapters() was called.
[[nodiscard]] storage::AdapterConfig describe_adapters(const Model& model,
                                                       const config::LoraConfig& lora);

// Returns a mark of the frozen weights that adapters train beside, which their checkpoints do not
// hold: 16 hex digits of MODEL's frozen parameters: names, sizes, and 16 elements of each, evenly
// spaced. A few pages of each are read, not the whole. REQUIRES: the parameters have the values
// that they were loaded with.
[[nodiscard]] std::string base_fingerprint(const Model& model);

}  // namespace dslaunch::graph
