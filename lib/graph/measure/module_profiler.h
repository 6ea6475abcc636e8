// The time and the FLOPs of each module in one step of a run. Each segment runs a copy of its
// graph, in which an operator marks the places where another module's code begins. The time of a
// node of autograd's graph belongs to the module whose forward made the node. Data path: segments
// -> [here] -> plan/print/module_table.h. Thread: the compute lane; autograd's threads.
#pragma once

#include <memory>
#include <vector>

#include "graph/segment/segmented_model.h"
#include "plan/print/module_table.h"

namespace dslaunch::graph {

// A profiler, which measures the modules that run while it exists. On a device, every mark waits
// until the device has finished its work, so a profiled step takes longer than other steps.
class ModuleProfiler {
  public:
    // Compiles marked copies of MODEL's segments. MODEL uses them until the profiler is destroyed,
    // and must outlive the profiler. REQUIRES: no segment of MODEL runs now; the thread is the one
    // that runs the segments.
    explicit ModuleProfiler(SegmentedModel& model);
    ModuleProfiler(const ModuleProfiler&) = delete;
    ModuleProfiler& operator=(const ModuleProfiler&) = delete;
    ~ModuleProfiler();

    // Returns the costs of the modules that ran so far, in the order in which they first ran.
    [[nodiscard]] std::vector<plan::ModuleCost> costs() const;

    // A scope in which forwards of this thread count as recomputes. Does nothing without a
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
    std::vector<std::shared_ptr<Code>> codes_;  // the codes that MODEL ran before
    std::unique_ptr<Callbacks> callbacks_;
};

}  // namespace dslaunch::graph
