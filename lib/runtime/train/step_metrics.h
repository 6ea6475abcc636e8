// A line of metrics.jsonl: the results of a step, its speed, and the memory used.
// docs/reference/metrics.md explains the fields. Data path: trainer -> [here] -> reporter. Pure.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/text/json.h"
#include "graph/lower/reward_means.h"
#include "plan/step/plan_check.h"
#include "runtime/comm/traffic.h"
#include "runtime/executor/step_breakdown.h"
#include "runtime/state/state_account.h"
#include "runtime/train/step_links.h"

namespace dslaunch::runtime {

// The data of a line. Losses, times and memory summarize all ranks. `tier_peaks` and the fields
// after it are facts of this rank.
struct StepMetrics {
    int64_t step = 0;
    int64_t samples_seen = 0;  // samples in all steps up to this step
    double loss = 0;
    std::optional<graph::RewardMeans> rewards;  // for a preference loss
    double lr = 0;
    std::optional<double> gradient_norm;
    double loss_scale = 1;
    bool skipped = false;
    double step_ms = 0;
    int64_t samples = 0;
    int64_t tokens_per_sample = 0;  // 0: samples are not tokens
    int64_t forward_flops = 0;      // FLOPs of this rank's forwards in the step
    double peak_tflops = 0;         // peak of this rank's device; 0 if not known
    std::string_view peak_source = "unknown";
    int64_t rss_bytes = 0;
    int64_t peak_rss_bytes = 0;
    int64_t page_faults = 0;
    double data_wait_ms = 0;
    double lane_wait_ms = 0;
    std::array<plan::TierPeak, plan::kTiers> tier_peaks;  // as planned
    std::array<Bytes, plan::kBufferKinds> kind_peaks;     // as planned
    MemoryAccount memory;                                 // counted by the state
    Traffic links;                                        // since the start
    StepLinks step_links;             // traffic of this rank's host in this step
    std::optional<DiskTraffic> disk;  // since the start; nullopt if nothing is on disk
    std::vector<WorkTime> breakdown;  // empty without wall_clock_breakdown
};

// Returns the tera-FLOPs per second of a step that took STEP_MS. The step has 3 * FORWARD_FLOPS,
// because the backward needs twice the work of the forward. Work that recompute repeats is not
// counted.
[[nodiscard]] double step_tflops(int64_t forward_flops, double step_ms);

// Returns one JSON object, without newline.
[[nodiscard]] std::string metrics_line(const StepMetrics& metrics);

// Adds the four reward means to JSON, with TRL's names after PREFIX: "rewards/chosen",
// "rewards/rejected", "rewards/margins" and "rewards/accuracies".
void add_rewards(JsonWriter& json, const std::string& prefix, const graph::RewardMeans& rewards);

// Returns "1234 tokens/s", or "0.031 samples/s". The plural of NOUN must be NOUN with an s.
[[nodiscard]] std::string rate_text(double per_second, std::string_view noun);

}  // namespace dslaunch::runtime
