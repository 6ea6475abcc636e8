// Changes the placement of chunks after given steps, by the means of adaptive placement.
#pragma once

#include <list>
#include <map>

#include "plan/step/step_plan.h"
#include "runtime/train/between_steps.h"

namespace dslaunch::testing {

using namespace plan;
using namespace runtime;

using KeptAfter = std::map<int64_t, int64_t>;  // step -> number of chunks that are kept after it

class ForcedPlacement {
  public:
    // The arguments must outlive this object.
    ForcedPlacement(const KeptAfter& kept_after, const ModelInfo& info, const FlatLayout& layout,
                    const StepPlanOptions& options)
        : kept_after_(kept_after), info_(info), layout_(layout), options_(options) {}

    // Does what BetweenSteps::after_step() does.
    [[nodiscard]] const StepPlan* after(const StepRun& run) {
        const auto kept = kept_after_.find(run.step);
        if (kept == kept_after_.end()) return nullptr;
        StepPlanOptions options = options_;
        options.offload.kept_chunks = kept->second;
        return &plans_.emplace_back(make_step_plan(info_, layout_, options));
    }

  private:
    const KeptAfter& kept_after_;
    const ModelInfo& info_;
    const FlatLayout& layout_;
    const StepPlanOptions& options_;
    std::list<StepPlan> plans_;
};

}  // namespace dslaunch::testing
