// The weight of each micro batch in a step's loss, which is a mean over the micro batches with a
// target that counts. The trainer calls this before each step, on all ranks. Only one thread of a
// rank may call it.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "config/run/run_config.h"
#include "runtime/comm/collectives.h"
#include "runtime/compute/segment_runner.h"

namespace dslaunch::runtime {

// The targets that count in one step.
struct StepTargets {
    // The factor of a micro step's loss. The sum of the weighted losses is this rank's loss; the
    // mean over ranks is taken afterwards. The factor is 0 if no target of the step counts.
    double weight = 1;
    std::vector<char> empty = {};  // marks micro steps without targets; empty if there are none
    int64_t empty_everywhere = 0;  // number of micro batches without a target, on all ranks
};

// A stage of a pipeline; by default the only one.
struct StageNumber {
    int stage = 0;
    int stages = 1;
};

// Computes the weights; see the top of this file.
class TargetWeights {
  public:
    // VARIES is true if micro batches may differ in the number of targets that count. COLLECTIVES
    // joins all ranks. SEGMENTS and COLLECTIVES must outlive this object.
    TargetWeights(config::LossMean mean, bool varies, SegmentRunner& segments,
                  Collectives& collectives, const StageNumber& stage);

    // Returns the targets that count in STEP (counted from 0). If they must be counted, the ranks
    // of the first stage load all micro batches of STEP, and the call blocks until all ranks have
    // made it. REQUIRES: all ranks call this function.
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
