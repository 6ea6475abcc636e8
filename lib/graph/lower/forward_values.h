// Turns forward's arguments and outputs into tensors: dicts, named tuples and optional values are
// taken apart. Steps of lower.h. No shared state.
#pragma once

#include <cstddef>

#include "config/run/run_config.h"
#include "graph/lowered/lowered_graph.h"

namespace dslaunch::graph {

// Replaces reads of dicts by the values that were stored in them, if GRAPH makes the dict at its
// top level and uses only constant names to set and read values. A dict that GRAPH returns is built
// at the end of GRAPH instead.
void fold_dicts(Graph& graph);

// Splits argument INDEX of LOWERED, which is a dict of tensors: each name that forward reads from
// the dict becomes a separate argument. VALUE: the dict's input of the graph. Throws Error{kInput}
// if forward uses the dict in any other way, such as iterating over its names.
void split_dict_argument(LoweredGraph& lowered, size_t index, Value* value);

// Makes one tensor LOWERED's output. From a tuple it takes the first value; from a named tuple or a
// dict it takes the value `loss` if LOSS is kModel, otherwise `logits`, or the only value. An
// optional tensor counts as a tensor. Sets LoweredGraph::output_choice. Throws Error{kInput} if it
// is not clear which value to take.
void choose_output(const config::LossConfig& loss, LoweredGraph& lowered);

}  // namespace dslaunch::graph
