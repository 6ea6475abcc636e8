// The facts that each rank sends to the others at the end of a step. They are measured and combined
// here. Data path: trainer -> [here] -> all_gather -> trainer. One thread.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "graph/lower/reward_means.h"
#include "runtime/comm/collectives.h"
#include "runtime/data/batch_loader.h"
#include "runtime/save/checkpointer.h"
#include "runtime/train/step_links.h"
#include "runtime/train/step_runner.h"

namespace dslaunch::runtime {

// The facts of one rank, or of all ranks together.
struct RankFacts {
    double loss = 0;             // mean over the micro batches of this rank, or of all ranks
    graph::RewardMeans rewards;  // mean rewards, for a preference loss
    bool has_rewards = false;
    int64_t rss_bytes = 0;  // this and the numbers below: of a rank, or the largest of all ranks
    int64_t peak_rss_bytes = 0;
    int64_t page_faults = 0;
    double data_wait_ms = 0;
    double compute_wait_ms = 0;
    bool end = false;  // true if a rank was asked to end
};

// The combined facts of all ranks for one step.
struct StepFacts : RankFacts {
    std::vector<SavePhase> saves;  // one per rank
    StepLinks links;               // traffic of rank 0's host
    double step_ms = 0;
    double loss_scale = 1;
    bool skipped = false;
};

// Combines the facts of all ranks. All ranks call it at the end of a step. STAGES is the number of
// pipeline stages; only ranks of the last stage have a loss. Blocks.
[[nodiscard]] StepFacts gather_facts(Collectives& collectives, int stages, const RankFacts& mine,
                                     SavePhase save, const StepLinks& links);

// Measures what a rank used since the end of the last step.
class RankMeter {
  public:
    // RUNNER and LOADER must outlive the meter. LOADER is null if the rank has no data loader.
    // TELLS_PLANNED is true if this rank reports how many bytes the plan sends to other hosts.
    RankMeter(const StepRunner& runner, const BatchLoader* loader, bool tells_planned)
        : runner_(runner), loader_(loader), tells_planned_(tells_planned) {}

    // Called before the first step. Resources that were used until then count for no step.
    void begin();
    // Returns the facts of the step that has just ended, without its loss, and starts over.
    [[nodiscard]] RankFacts take();
    // Returns this rank's traffic since the last call, or since begin().
    [[nodiscard]] StepLinks take_links();

  private:
    const StepRunner& runner_;
    const BatchLoader* loader_;
    bool tells_planned_;
    int64_t faults_before_ = 0;
    Duration data_waited_before_{};
    TrafficTable traffic_before_;
};

}  // namespace dslaunch::runtime
