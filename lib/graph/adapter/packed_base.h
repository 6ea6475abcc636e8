// The base of a model with adapters in 8 or 4 bits (QLoRA, arXiv:2305.14314): the weights of its
// linear layers are held packed, and products unpack them, in the forward and again in the
// backward. Data path: lower.h, adapters -> [here] -> cuts, segments. No shared state.
#pragma once

#include "config/run/lora_config.h"
#include "graph/archive/model.h"
#include "graph/lowered/lowered_graph.h"

namespace dslaunch::graph {

// Packs the weights of LOWERED's linear layers in BASE and puts products with them in the place of
// those that are there. Left as they are: the last layer that forward computes, what is trained
// (modules_to_save), and weights that forward reads in another way too, as a tied table of tokens.
// Those that are packed already stay so. Throws Error{kInput} if that leaves none, or forward needs
// the module itself. REQUIRES: BASE is not kAsIs; add_adapters() has been called.
void pack_base(Model& model, LoweredGraph& lowered, config::LoraBase base);

}  // namespace dslaunch::graph
