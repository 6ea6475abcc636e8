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
// frozen helpers of MODEL, so they are sharded and offloaded like other parameters. The loss
// becomes (1 - weight) times itself plus weight times the teacher's loss:
// - kLogits: temperature^2 times the mean, over the targets that count, of the divergence of the
//   model's probabilities from the teacher's, both at that temperature;
// - kHidden: the mean squared difference of the inputs of the output layers, over the same targets.
// Throws Error{kInput} if the teacher takes different arguments, or if its loss or the model's loss
// is not a cross entropy.
void add_teacher(Model& model, LoweredGraph& lowered, const config::DistillConfig& config,
                 const Teacher& teacher);

}  // namespace dslaunch::graph
