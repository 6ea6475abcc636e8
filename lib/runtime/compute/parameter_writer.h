// Between steps, writes the values that a model's forward assigns to its trained parameters before
// it reads them (graph/lowered/lowered_graph.h), once for all ranks. Thread: the trainer's.
#pragma once

#include <functional>

#include "graph/segment/segmented_model.h"
#include "runtime/state/writable_state.h"

namespace dslaunch::runtime {

// Writes the parameters for which IS_HERE is true, that is, which this rank's stage trains; if
// IS_HERE is empty, all. Every rank that trains these parameters calls it, between steps. Blocks if
// anything is written.
void write_parameters(const graph::SegmentedModel& model, WritableState& state,
                      const std::function<bool(int parameter)>& is_here = {});

}  // namespace dslaunch::runtime
