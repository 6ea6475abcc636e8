#include "runtime/train/step_targets.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "graph/lower/target_count.h"

namespace dslaunch::runtime {

TargetWeights::TargetWeights(config::LossMean mean, bool varies, SegmentRunner& segments,
                             Collectives& collectives, const StageNumber& stage)
    : by_token_(mean == config::LossMean::kToken),
      varies_(varies),
      segments_(segments),
      collectives_(collectives),
      stage_(stage) {
    DSL_CHECK(!by_token_ || segments.targets() != nullptr, "targets are not known");
    if (!by_token_ && (!varies_ || segments.targets() == nullptr))
        of_every_step_ =
            StepTargets{1.0 / static_cast<double>(segments_.options().accumulation_steps), {}, 0};
}

StepTargets TargetWeights::of(int64_t step) {
    if (of_every_step_) return *of_every_step_;
    const StepTargets counted = count(step);
    if (!varies_) of_every_step_ = counted;
    return counted;
}

// Counts the targets on all ranks of the first stage, and the micro batches with at least one
// target. If N ranks load the same micro batch, each of them counts it, so all sums are multiples
// of N. In a pipeline, the last stage computes the losses but has not seen the targets, so it
// learns from this call which micro batches are empty.
StepTargets TargetWeights::count(int64_t step) const {
    const SegmentRunnerOptions& rows = segments_.options();
    const auto micro_steps = static_cast<size_t>(rows.accumulation_steps);
    const auto data_ranks = static_cast<size_t>(rows.data_parallel_size);
    const bool tells_which = stage_.stages > 1 && varies_;
    std::vector<double> sums(2 + (tells_which ? data_ranks * micro_steps : 0), 0.0);
    double& targets = sums[0];
    double& batches = sums[1];
    const std::span own = std::span(sums).subspan(
        tells_which ? 2 + static_cast<size_t>(rows.data_parallel_rank) * micro_steps : 2);
    StepTargets made;
    if (stage_.stage == 0) {
        for (const std::vector<c10::IValue>& batch : segments_.look_ahead(step)) {
            const double counted = segments_.targets()->of(batch);
            made.empty.push_back(counted != 0 ? 0 : 1);
            targets += counted;
            batches += counted != 0 ? 1 : 0;
        }
        if (tells_which) std::ranges::copy(made.empty, own.begin());
    }
    collectives_.sum_ordered(sums);
    if (tells_which) {
        made.empty.resize(micro_steps);
        for (size_t m = 0; m < micro_steps; ++m) made.empty[m] = own[m] > 0 ? 1 : 0;
    }
    const double ranks = collectives_.topology().world_size() / stage_.stages;
    const double over = by_token_ ? targets : batches;
    made.weight = over > 0 ? ranks / over : 0;
    const double sharing = ranks / static_cast<double>(data_ranks);
    made.empty_everywhere =
        static_cast<int64_t>(data_ranks * micro_steps) - std::llround(batches / sharing);
    return made;
}

}  // namespace dslaunch::runtime
