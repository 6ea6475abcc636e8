// Forward takes and returns more than plain tensors: a dict of tensors as an argument, a tuple or a
// dict as the output, as models of Hugging Face have them. Data path: inlined graph -> [here] ->
// loss. No shared state.
#pragma once

#include <string>

#include "config/run/run_config.h"
#include "graph/lowered/lowered_graph.h"

namespace torch::jit {
struct Value;
}

namespace dslaunch::graph {

// Replaces argument INDEX of LOWERED, a dict of tensors by name that is input VALUE of the graph,
// by one argument for each name that forward reads from it. Throws Error{kInput} if forward does
// anything else with it, as to go through its names.
void split_dict_argument(LoweredGraph& lowered, size_t index, torch::jit::Value* value);

// Makes one tensor of LOWERED's output: of a tuple its first value, of a named tuple or a dict the
// value `loss` where LOSS is kModel, else `logits`, or the only one. An optional tensor counts as
// one. Sets LoweredGraph::output_choice. Throws Error{kInput} where nothing tells which value it
// is.
void choose_output(const config::LossConfig& loss, LoweredGraph& lowered);

}  // namespace dslaunch::graph
