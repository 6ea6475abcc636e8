// Runs one step of a job under the profiler of modules and reports what each module costs, for
// flops_profiler. Data path: trainer -> [here] -> graph/measure/module_profiler.h -> log or file.
// Thread: the compute lane's.
#pragma once

#include <cstdint>
#include <functional>

#include "config/run/run_config.h"
#include "graph/segment/segmented_model.h"
#include "plan/model/model_info.h"

namespace dslaunch::runtime {

// The model and the numbers of a profile. The objects must outlive the profiler.
struct StepProfilerParts {
    const config::RunConfig* config = nullptr;
    graph::SegmentedModel* model = nullptr;  // null: this rank is not profiled
    const plan::ModelInfo* info = nullptr;   // with this rank's segments
    int64_t steps_before = 0;                // steps of earlier runs
    int world_size = 1;
    double peak_tflops = 0;  // peak of this rank's device; 0 if not known
};

// Profiles a step; see the top of this file.
class StepProfiler {
  public:
    // Warns if the run has no step to profile.
    explicit StepProfiler(const StepProfilerParts& parts);

    // Calls RUN, which runs step number STEP on this thread. If the config names this step, reports
    // its profile after RUN has returned. If the profile's file cannot be written, warns and writes
    // the report to the log.
    void run(int64_t step, const std::function<void()>& run) const;

  private:
    void report(const std::string& tables) const;

    StepProfilerParts parts_;
    int64_t profiled_ = 0;  // the step to profile; 0: none
};

}  // namespace dslaunch::runtime
