// The decoder of a Hugging Face folder as a TorchScript module: transformer.torchscript with the
// switches and names of a config.json, and with weights that the caller supplies. Data path:
// storage/huggingface -> [here] -> graph/archive/mapped_archive.h. No threads.
#pragma once

#include <torch/csrc/jit/api/module.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "graph/nodes/names.h"
#include "storage/huggingface/transformer_switches.h"

namespace dslaunch::graph {

// A function that returns the weight NAME, such as "model.layers.0.self_attn.q_proj.weight". Throws
// if the weight is missing or its shape is not SIZES.
using WeightOf = std::function<at::Tensor(const std::string& name, at::IntArrayRef sizes)>;

// Makes a module: forward(tokens, targets) -> mean cross entropy; logits(tokens) -> [B, T,
// vocabulary]. SHAPE: tokens, targets [B, T] int64. Parameters have the names of the family's
// modules in transformers and require gradients. WEIGHT_OF returns them; it is called in the order
// in which the layers use them. `context` is a constant of the class. The module is in train mode.
[[nodiscard]] Module make_transformer(const storage::TransformerConfig& config,
                                      const WeightOf& weight_of);

// Makes a module of one layer of the model: forward(x, documents) -> y, for x and y [B, T, width],
// the rows before and after layer LAYER. DOCUMENTS is None if each row of x is one document. The
// module is in evaluation mode, so it has no dropout; the rest is like make_transformer().
[[nodiscard]] Module make_transformer_layer(const storage::TransformerConfig& config, int64_t layer,
                                            const WeightOf& weight_of);

// Returns the rotary frequencies of CONFIG, computed with the arithmetic of transformers.
[[nodiscard]] storage::RotaryFrequencies rotary_frequencies(
    const storage::TransformerConfig& config);

}  // namespace dslaunch::graph
