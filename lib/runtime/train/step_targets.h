// The weight of each micro batch in a step's loss, a mean. Micro batches without a target that
// counts have no part in it. The trainer asks before each step. One thread of each rank, all ranks
// at once.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "config/run/run_config.h"
#include "runtime/comm/collectives.h"
#include "runtime/compute/segment_runner.h"

namespace dslaunch::runtime {

struct StepTargets {
    // The weight of each micro step's loss in the mean over this rank's micro steps; the mean over
    // ranks comes on top. 0: no target of the step counts.
    double weight = 1;
    std::vector<char> empty = {};  // this rank's micro steps without a target; empty: all have some
    int64_t empty_everywhere = 0;  // micro batches of all ranks without a target
};

struct StageNumber {
    int stage = 0;
    int stages = 1;
};

class TargetWeights {
  public:
    // VARIES: micro batches may differ in the number of targets that count. The references must
    // outlive the object. COLLECTIVES joins all ranks.
    TargetWeights(config::LossMean mean, bool varies, SegmentRunner& segments,
                  Collectives& collectives, const StageNumber& stage);

    // Returns the weights of STEP, from 0. SEGMENTS then has its micro batches. Blocks until all
    // ranks have come, unless no batch need be looked at. REQUIRES: all ranks call it.
    [[nodiscard]] StepTargets of(int64_t step);

  private:
    [[nodiscard]] StepTargets count(int64_t step) const;

    bool by_token_;
    bool varies_;
    SegmentRunner& segments_;
    Collectives& collectives_;
    StageNumber stage_;
    std::optional<StepTargets> of_every_step_;
};

}  // namespace dslaunch::runtime
