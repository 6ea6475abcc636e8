// Writes between steps, once for all ranks, the values that a model's forward gives its trained
// parameters before it reads them (graph/lowered/lowered_graph.h). Thread: the trainer's.
#pragma once

#include <functional>

#include "graph/segment/segment.h"
#include "runtime/state/writable_state.h"

namespace dslaunch::runtime {

// Writes the parameters for which IS_HERE is true: this rank's stage trains them; empty: all. Every
// rank of the same parameters calls it, between steps. Blocks if anything is written.
void write_parameters(const graph::SegmentedModel& model, WritableState& state,
                      const std::function<bool(int parameter)>& is_here = {});

}  // namespace dslaunch::runtime
