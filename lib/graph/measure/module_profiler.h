// The time and the FLOPs of each module in one step of a run. The segments run from copies of their
// graphs in which an operator marks where the code of another module begins; a backward's time
// belongs to the module whose forward made its node of autograd's graph. Data path: segments ->
// [here] -> plan/print/module_table.h. Thread: the compute lane; autograd's threads.
#pragma once

#include <memory>
#include <vector>

#include "graph/segment/segmented_model.h"
#include "plan/print/module_table.h"

namespace dslaunch::graph {

// Measures the step that runs while it exists. On a device every mark waits for the device, so that
// its work is timed: such a step takes longer than others.
class ModuleProfiler {
  public:
    // Compiles marked copies of the segments of MODEL, which must outlive the profiler and use them
    // until the profiler is destroyed. REQUIRES: no segment of MODEL runs now; the thread is the
    // one that runs the segments.
    explicit ModuleProfiler(SegmentedModel& model);
    ModuleProfiler(const ModuleProfiler&) = delete;
    ModuleProfiler& operator=(const ModuleProfiler&) = delete;
    ~ModuleProfiler();

    // Returns the costs of the modules that ran so far, in the order in which they first ran.
    [[nodiscard]] std::vector<plan::ModuleCost> costs() const;

    // While it exists, forwards of this thread count as recomputes. Does nothing without a
    // profiler.
    class RecomputeScope {
      public:
        RecomputeScope();
        RecomputeScope(const RecomputeScope&) = delete;
        RecomputeScope& operator=(const RecomputeScope&) = delete;
        ~RecomputeScope();
    };

  private:
    class Record;
    class Callbacks;

    SegmentedModel& model_;
    std::shared_ptr<Record> record_;  // part of LibTorch's thread state while callbacks_ lives
    std::vector<std::shared_ptr<Code>> codes_;  // MODEL's own
    std::unique_ptr<Callbacks> callbacks_;
};

}  // namespace dslaunch::graph
