// Writes between steps, once for all ranks, the values that a model's forward gives its trained
// parameters before it reads them (graph/lowered/lowered_graph.h). Thread: the trainer's.
#pragma once

#include <functional>

#include "graph/segment/segment.h"
#include "runtime/state/writable_state.h"

namespace dslaunch::runtime {

// IS_HERE says which parameters this rank's stage trains; empty: all. Every rank whose parameters
// are the same calls it, between steps. Blocks if anything is written.
void write_parameters(const graph::SegmentedModel& model, WritableState& state,
                      const std::function<bool(int parameter)>& is_here = {});

}  // namespace dslaunch::runtime
