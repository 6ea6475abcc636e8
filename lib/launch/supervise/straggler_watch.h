// Finds the rank for which the others wait. The heartbeats contain the working time of each rank's
// lanes (compute, link, disk). Every INTERVAL_STEPS steps, this time is compared with the median of
// the ranks. One line reports that a rank has become slow, and a second line reports that the rank
// is no longer slow. No input or output. Used by one thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "launch/supervise/rank_record.h"

namespace dslaunch::launch {

// A rank is reported only if it works longer than the median rank by this share of the median's
// time.
inline constexpr double kStragglerShareMin = 0.20;
// A rank is reported only if its additional working time is also at least this share of a whole
// step. A smaller delay does not slow the other ranks noticeably.
inline constexpr double kStragglerStepShareMin = 0.05;
// Each of the two limits above is multiplied by this factor for a rank that was already reported.
// The rank counts as slow until its additional time is below one of these lower limits. Thus a rank
// near a limit is not reported again and again.
inline constexpr double kStragglerEndPart = 0.5;
// The ranks are compared every INTERVAL_STEPS steps. If these steps take longer than this time, the
// ranks are compared as soon as this time is over and each rank has done kStragglerStepsMin steps,
// which are enough for a mean.
inline constexpr std::chrono::seconds kStragglerTimeMax{60};
inline constexpr double kStragglerStepsMin = 5;

// The comparison of the ranks of one attempt.
class StragglerWatch {
  public:
    // If INTERVAL_STEPS is 0, no rank is ever reported.
    explicit StragglerWatch(int64_t interval_steps) : interval_steps_(interval_steps) {}

    // Compares RANKS and returns the lines to show; call it after each heartbeat. If a rank becomes
    // slow in a lane, a line names the rank, its host, the lane and the step since which the rank
    // is slow. Another line reports that the rank is no longer slow. Only ranks that use a lane are
    // compared in this lane. If only two ranks use it, the time of the faster one is the median.
    [[nodiscard]] std::vector<std::string> look(const std::vector<RankRecord>& ranks);

  private:
    struct Mark {
        double steps = 0;
        std::vector<LaneTime> lanes;
        std::chrono::steady_clock::time_point at;
    };
    // The work of one lane of one rank: the mean time per step since the last call of mark().
    struct Work {
        size_t rank = 0;
        std::string lane;
        double ms = 0;
        double median_ms = 0;  // of the ranks that have the lane
        double step_ms = 0;
        [[nodiscard]] double excess_ms() const { return ms - median_ms; }
        // Returns true if the excess reaches both limits (kStragglerShareMin and
        // kStragglerStepShareMin), each multiplied by PART.
        [[nodiscard]] bool stands_out(double part) const {
            return excess_ms() >= part * kStragglerShareMin * median_ms &&
                   excess_ms() >= part * kStragglerStepShareMin * step_ms;
        }
    };
    // The rank that stands out, as it was reported.
    struct Slow {
        size_t rank = 0;
        std::string lane;
        double since_step = 0;
    };
    [[nodiscard]] std::vector<Work> works(const std::vector<RankRecord>& ranks) const;
    [[nodiscard]] std::vector<std::string> compare(const std::vector<RankRecord>& ranks);
    [[nodiscard]] bool is_time(const std::vector<RankRecord>& ranks) const;
    void mark(const std::vector<RankRecord>& ranks);

    int64_t interval_steps_;
    std::vector<Mark> marks_;   // by rank; empty: some rank has sent no heartbeat yet
    std::optional<Slow> slow_;  // nullopt: no rank stands out
};

}  // namespace dslaunch::launch
