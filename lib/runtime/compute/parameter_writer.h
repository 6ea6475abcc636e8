// Writes between steps, once for all ranks, the values that a model's forward gives its trained
// parameters before it reads them (graph/lowered/parameter_writes.h). Thread: the trainer's.
#pragma once

#include <functional>
#include <vector>

#include "graph/segment/segment.h"
#include "runtime/state/writable_state.h"

namespace dslaunch::runtime {

class ParameterWriter {
  public:
    // IS_HERE says which parameters this rank's stage trains; empty: all. MODEL and STATE must
    // outlive this.
    ParameterWriter(const graph::SegmentedModel& model, WritableState& state,
                    const std::function<bool(int parameter)>& is_here = {});

    // Every rank whose parameters are the same calls it.
    void run();

  private:
    const graph::SegmentedModel& model_;
    WritableState& state_;
    std::vector<const graph::ParameterWrites*> writes_;  // of this stage
    std::vector<int> read_;                              // parameters, each once
    std::vector<int> written_;
};

}  // namespace dslaunch::runtime
