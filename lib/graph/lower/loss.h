// The loss that a config names, appended to a lowered graph whose forward returns an output.
#pragma once

#include "config/run/run_config.h"
#include "graph/lowered/lowered_graph.h"

namespace dslaunch::graph {

// Appends LOSS to LOWERED. kModel: only checks that output 0 can be a loss. Otherwise adds the
// target as the last argument and the loss as output 0. Shapes as in PyTorch: cross_entropy takes
// [*, classes] against [*] int64 (or [N, classes, …]), the others equal shapes. Under autocast all
// losses compute in fp32. The loss of a model that computes its own is returned in fp32 (a loss
// scale exceeds the range of fp16).
//
// A loss of preferences takes pairs: all arguments are [pairs, 2, …], the chosen answer first, and
// forward gets them as [pairs * 2, …]. The target is [pairs, 2, length] int64; dpo and ipo have an
// argument `reference` [pairs, 2] before it, the reference's log-probabilities of the answers. The
// graph then has one output more, behind all others: the rewards of the answers [pairs, 2] in fp32,
// detached. A reward is beta times the answer's log-probability, in dpo and ipo beside the
// reference's, in simpo and orpo its mean over the answer's tokens.
//
// Throws Error{kInput} when the output is no tensor, and for a loss of preferences whose target
// forward takes itself.
void append_loss(const config::LossConfig& loss, LoweredGraph& lowered);

}  // namespace dslaunch::graph
