// The facts that each rank tells the others at the end of a step, and their combination. Data path:
// trainer -> [here] -> all_gather -> trainer. One thread.
#pragma once

#include <cstdint>
#include <vector>

#include "graph/lower/reward_means.h"
#include "runtime/comm/collectives.h"
#include "runtime/save/checkpointer.h"
#include "runtime/train/step_links.h"

namespace dslaunch::runtime {

struct RankFacts {
    double loss = 0;             // mean over this rank's micro batches, or over all ranks'
    graph::RewardMeans rewards;  // of a loss of preferences, the same means
    bool has_rewards = false;
    int64_t rss_bytes = 0;  // of a rank, or of the rank that has most; so all below
    int64_t peak_rss_bytes = 0;
    int64_t page_faults = 0;
    double data_wait_ms = 0;
    double compute_wait_ms = 0;
    bool end = false;  // a rank was asked to end
};

// The facts of a step over all ranks.
struct StepFacts : RankFacts {
    std::vector<SavePhase> saves;  // one per rank
    StepLinks links;               // of rank 0's host
    double step_ms = 0;
    double loss_scale = 1;
    bool skipped = false;
};

// Combines the facts of all ranks; all call it at the end of a step. Only the ranks of the last of
// STAGES have a loss. Blocks.
[[nodiscard]] StepFacts gather_facts(Collectives& collectives, int stages, const RankFacts& mine,
                                     SavePhase save, const StepLinks& links);

}  // namespace dslaunch::runtime
