// The loss that a config names, appended to a lowered graph whose forward returns an output.
#pragma once

#include "graph/lower.h"

namespace dslaunch {

// kModel: checks that output 0 can be a loss. Otherwise adds the target as the last argument and the loss as output 0.
// Shapes as in PyTorch: cross_entropy takes [*, classes] against [*] int64 (or [N, classes, …]), the others equal shapes.
// Throws Error{kInput} when the output is a tuple or the target's name is already an argument that forward uses otherwise.
void append_loss(const LossConfig& loss, LoweredGraph& lowered);

}  // namespace dslaunch
