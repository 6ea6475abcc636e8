// A teacher in the graph of the model that learns from it: the teacher's layers run before the
// model's, without gradients, and its answers are a part of the loss. A step of lower.h. No shared
// state.
#pragma once

#include "config/run/compression_config.h"
#include "graph/archive/model.h"
#include "graph/lowered/lowered_graph.h"

namespace dslaunch::graph {

// A teacher: its model, and its graph in eval mode with a cross entropy as loss, in fp32.
struct Teacher {
    Model model;
    LoweredGraph lowered;
};

// Adds TEACHER's graph to LOWERED, a graph of MODEL with its loss. The teacher's weights become
// frozen helpers of MODEL, so they are sharded and offloaded like other parameters. The new loss is
// `(1 - weight) * loss + weight * teacher's loss`. The teacher's loss is:
// - for kLogits: temperature^2 times the divergence of the model's probabilities from the
//   teacher's, at this temperature, averaged over the targets that count;
// - for kHidden: the mean squared difference of the inputs of the output layers, over the same
//   targets.
// Throws Error{kInput} if the teacher takes different arguments, or if its loss or the model's loss
// is not a cross entropy.
void add_teacher(Model& model, LoweredGraph& lowered, const config::DistillConfig& config,
                 const Teacher& teacher);

}  // namespace dslaunch::graph
