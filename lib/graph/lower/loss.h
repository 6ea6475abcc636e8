// The loss as a part of the graph. The last step of lower.h. No shared state.
#pragma once

#include "config/run/run_config.h"
#include "graph/lowered/lowered_graph.h"

namespace dslaunch::graph {

// Appends LOSS to LOWERED. kModel: only checks that output 0 can be a loss. Otherwise adds the
// target as the last argument and the loss as output 0. Shapes are as in PyTorch: cross_entropy
// takes [*, classes] and targets [*] int64 (or [N, classes, …]); for the other losses both have the
// same shape. Under autocast all losses compute in fp32. If the model computes its own loss, the
// graph returns it in fp32, because a loss scale exceeds the range of fp16.
//
// A preference loss takes pairs: all arguments are [pairs, 2, …] with the chosen answer first, and
// forward gets them as [pairs * 2, …]. The target is [pairs, 2, length] int64. In dpo and ipo, an
// argument `reference` [pairs, 2] precedes it: the reference model's log-probabilities of the
// answers. The graph then has one more output, after all others: the rewards of the answers,
// [pairs, 2] in fp32, detached. In dpo and ipo, a reward is beta times (the answer's
// log-probability minus the reference's). In simpo and orpo, it is beta times the mean
// log-probability of the answer's tokens.
//
// Throws Error{kInput} if the output is not a tensor. For a preference loss, also throws it if
// forward itself takes the target as an argument.
void append_loss(const config::LossConfig& loss, LoweredGraph& lowered);

}  // namespace dslaunch::graph
