// The rank for which the others wait, by the heartbeats: every so many steps the time that each
// rank's lanes worked, by themselves, is compared with that of the median rank. Pure; one thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "launch/supervise/rank_record.h"

namespace dslaunch::launch {

// A rank is named when it works longer than the median rank by this share of the median's time …
inline constexpr double kStragglerShareMin = 0.20;
// … and by this share of a whole step: less makes nobody wait noticeably.
inline constexpr double kStragglerStepShareMin = 0.05;

class StragglerWatch {
  public:
    // INTERVAL_STEPS 0: says nothing.
    explicit StragglerWatch(int64_t interval_steps) : interval_steps_(interval_steps) {}

    // Is called after each heartbeat. The result is a line when every rank has done INTERVAL_STEPS
    // more steps since the last look and one of them stands out; nothing otherwise. Of two ranks
    // the faster one is the median.
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
    std::vector<Mark> marks_;  // by rank; empty: not all ranks have spoken yet
};

}  // namespace dslaunch::launch
