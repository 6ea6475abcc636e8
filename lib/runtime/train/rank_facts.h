// The facts that each rank tells the others at the end of a step, as bytes. Data path: trainer ->
// [here] -> all_gather -> trainer. Pure.
#pragma once

#include <cstdint>
#include <string>

#include "graph/lower/reward_means.h"
#include "runtime/save/checkpointer.h"
#include "runtime/train/step_links.h"

namespace dslaunch::runtime {

struct RankFacts {
    double loss = 0;
    graph::RewardMeans rewards;
    bool has_rewards = false;
    int64_t rss_bytes = 0;
    int64_t peak_rss_bytes = 0;
    int64_t page_faults = 0;
    double data_wait_ms = 0;
    double compute_wait_ms = 0;
    bool end = false;
    SavePhase save = SavePhase::kIdle;
    StepLinks links = {};
};

[[nodiscard]] std::string encode_facts(const RankFacts& facts);
// Throws Error{kInternal} for bytes that are none.
[[nodiscard]] RankFacts decode_facts(const std::string& bytes);

}  // namespace dslaunch::runtime
