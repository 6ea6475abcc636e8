// The steps of lower.h on the module, on forward's arguments and outputs, and on its loss. No
// shared state.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "config/run/run_config.h"
#include "graph/archive/model.h"
#include "graph/lowered/lowered_graph.h"

namespace dslaunch::graph {

// Replaces every attribute of the module that the graph reads: parameters and buffers by inputs
// (one per tensor, by identity), lists and tuples of them by constructs over these inputs,
// everything else by constants; attributes that the graph writes become states. SIMPLIFY propagates
// constants in between, so that an attribute that only an untaken branch writes is no state. Nodes
// that still need the module object (interface calls) keep it as input 0.
void lift_attributes(Model& model, LoweredGraph& lowered, const std::function<void()>& simplify);

// Removes parameter, buffer and module inputs that nothing reads.
void drop_unused_inputs(LoweredGraph& lowered);

// Replaces reads of dicts by the values that were put there, if GRAPH makes the dict at its top
// level and only sets and reads values by constant names; a dict that leaves GRAPH is made at its
// end.
void fold_dicts(Graph& graph);

// Returns the text that VALUE is as a constant of its graph; nothing: it is none.
[[nodiscard]] std::optional<std::string> constant_text(const Value* value);

// Replaces argument INDEX of LOWERED, a dict of tensors by name that is input VALUE of the graph,
// by one argument for each name that forward reads from it. Throws Error{kInput} if forward does
// anything else with it, as to go through its names.
void split_dict_argument(LoweredGraph& lowered, size_t index, Value* value);

// Makes one tensor LOWERED's output: a tuple's first value; of a named tuple or a dict the value
// `loss` if LOSS is kModel, else `logits`, or the only one. An optional tensor counts as one. Sets
// LoweredGraph::output_choice. Throws Error{kInput} if nothing tells which value it is.
void choose_output(const config::LossConfig& loss, LoweredGraph& lowered);

// Appends LOSS to LOWERED. kModel: only checks that output 0 can be a loss. Otherwise adds the
// target as the last argument and the loss as output 0. Shapes as in PyTorch: cross_entropy takes
// [*, classes] against [*] int64 (or [N, classes, …]), the others equal shapes. Under autocast all
// losses compute in fp32. The loss of a model that computes its own is returned in fp32 (a loss
// scale exceeds the range of fp16).
//
// A loss of preferences takes pairs: all arguments are [pairs, 2, …], the chosen answer first, and
// forward gets them as [pairs * 2, …]. The target is [pairs, 2, length] int64; dpo and ipo have an
// argument `reference` [pairs, 2] before it, the reference's log-probabilities of the answers. The
// graph then has one output more, after all others: the rewards of the answers [pairs, 2] in fp32,
// detached. A reward is beta times the answer's log-probability, in dpo and ipo less the
// reference's, in simpo and orpo its mean over the answer's tokens.
//
// Throws Error{kInput} when the output is not a tensor, and for a loss of preferences whose target
// forward takes itself.
void append_loss(const config::LossConfig& loss, LoweredGraph& lowered);

}  // namespace dslaunch::graph
