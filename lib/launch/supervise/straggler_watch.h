// Finds the rank for which the others wait, by the heartbeats: after every INTERVAL_STEPS steps,
// the working time of each rank's lanes is compared with the median rank's. Pure; one thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "launch/supervise/rank_record.h"

namespace dslaunch::launch {

// A rank is reported if it works longer than the median rank by this share of the median's time …
inline constexpr double kStragglerShareMin = 0.20;
// … and by this share of a whole step: a smaller difference makes no rank wait noticeably.
inline constexpr double kStragglerStepShareMin = 0.05;

// The comparison of the ranks of one attempt.
class StragglerWatch {
  public:
    // If INTERVAL_STEPS is 0, no rank is ever reported.
    explicit StragglerWatch(int64_t interval_steps) : interval_steps_(interval_steps) {}

    // Compares RANKS; call it after each heartbeat. Returns a line if every rank has done
    // INTERVAL_STEPS more steps since the last comparison and one rank stands out; else nothing. Of
    // two ranks, the faster one is the median.
    [[nodiscard]] std::optional<std::string> look(const std::vector<RankRecord>& ranks);

  private:
    struct Mark {
        double steps = 0;
        std::vector<LaneTime> lanes;
        std::chrono::steady_clock::time_point at;
    };
    [[nodiscard]] std::optional<std::string> compare(const std::vector<RankRecord>& ranks) const;
    void mark(const std::vector<RankRecord>& ranks);

    int64_t interval_steps_;
    std::vector<Mark> marks_;  // by rank; empty: some rank has sent no heartbeat yet
};

}  // namespace dslaunch::launch
