// Some models assign new values to their trained parameters in forward, before they read the
// parameters (graph/lowered/lowered_graph.h). This file stores these values between steps, once for
// all ranks. Thread: the trainer's.
#pragma once

#include <functional>

#include "graph/segment/segmented_model.h"
#include "runtime/state/writable_state.h"

namespace dslaunch::runtime {

// Writes the parameters that this rank's stage trains: IS_HERE returns true for them. If IS_HERE is
// empty, it writes all. Every rank that trains these parameters calls it, between steps. Blocks if
// anything is written.
void write_parameters(const graph::SegmentedModel& model, WritableState& state,
                      const std::function<bool(int parameter)>& is_here = {});

}  // namespace dslaunch::runtime
