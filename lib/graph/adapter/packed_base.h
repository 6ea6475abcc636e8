// The frozen base of a model with adapters, in 8 or 4 bits (QLoRA, arXiv:2305.14314): the weights
// of its linear layers are stored packed, and products unpack them in the forward pass and again in
// the backward pass. Data path: lower.h, adapters -> [here] -> cuts, segments. No shared state.
#pragma once

#include "config/run/lora_config.h"
#include "graph/archive/model.h"
#include "graph/lowered/lowered_graph.h"

namespace dslaunch::graph {

// Packs the weights of LOWERED's linear layers in the form BASE, and replaces their products by
// products with packed weights. These weights are not packed: the weight of the last layer that
// forward computes, trained weights (modules_to_save), weights that forward also reads in another
// way (a tied table of tokens), and weights that are packed already. Throws Error{kInput} if
// nothing is left to pack, or if forward needs the module itself. REQUIRES: BASE is not kAsIs;
// add_adapters() has been called.
void pack_base(Model& model, LoweredGraph& lowered, config::LoraBase base);

}  // namespace dslaunch::graph
