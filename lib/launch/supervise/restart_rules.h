// The rules after a failed attempt at a job: whether to restart, after how long a wait, and on
// which hosts. Pure functions; job_loop.cpp acts on them.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <optional>
#include <vector>

#include "launch/plan/job_spec.h"

namespace dslaunch::launch {

// If an attempt lived this long, its failure does not count as a quick failure: the next attempt
// begins at once.
inline constexpr std::chrono::seconds kSteadyAttempt{60};
// A host that has not answered an elastic restart within this time is left out until the next
// restart.
inline constexpr std::chrono::seconds kAnswerMax{15};
// The time for which hosts are tried repeatedly if too few answer after a failure.
inline constexpr std::chrono::seconds kGatherMax{60};

// Returns the wait before a restart after FAILURES_IN_A_ROW quick failures in a row (see
// kSteadyAttempt). The wait is 0 without a quick failure and 1 s after the first one. Each further
// quick failure doubles the wait, up to 30 s.
[[nodiscard]] std::chrono::milliseconds restart_delay(int failures_in_a_row);

// An attempt that has ended, or is about to end.
struct EndedAttempt {
    TargetKind target_kind = TargetKind::kModel;
    int exit_code = 0;
    bool may_restart = false;  // a rank failed or a host was lost, and nobody asked for the end
    int restarts = 0;          // restarts before this attempt
    int restarts_max = 0;
};

// The next thing to do after an attempt.
enum class RestartVerdict {
    kEnd,          // the attempt ended well or was asked to end, or all restarts have been made
    kSameMistake,  // a training job's usage, config or input error, which would occur again. Other
                   // programs never get this value: their exit codes mean something else.
    kRestart,
};
// Returns the next thing to do after ATTEMPT.
[[nodiscard]] RestartVerdict decide_restart(const EndedAttempt& attempt);

// Returns true if the job can run on the given hosts.
using HostsFit = std::function<bool(const std::vector<size_t>& hosts)>;
// Returns the hosts of an attempt, as indices into the hostfile: as many hosts as RANGE and FITS
// allow, taken in order from the hosts that are not bad. Returns nothing if no number of hosts is
// allowed. If FITS is empty, it allows all hosts. REQUIRES: 1 <= range.min <= range.max.
[[nodiscard]] std::optional<std::vector<size_t>> choose_hosts(const std::vector<bool>& is_bad,
                                                              const NodeCounts& range,
                                                              const HostsFit& fits = {});
// Returns the hosts of an attempt for the range and the numbers of ranks that RULES allow.
[[nodiscard]] std::optional<std::vector<size_t>> choose_hosts(const std::vector<bool>& is_bad,
                                                              const ElasticRules& rules);

}  // namespace dslaunch::launch
