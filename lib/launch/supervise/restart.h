// The rules for what follows a failed attempt at a job: another one or none, after which wait, and
// on which hosts. Pure functions; job_loop.cpp acts on them.
#pragma once

#include <chrono>
#include <optional>
#include <vector>

#include "launch/plan/job_spec.h"

namespace dslaunch::launch {

// An attempt that lived this long is no failure "in a row": the next one begins at once.
inline constexpr std::chrono::seconds kSteadyAttempt{60};
// A host that has not answered an elastic restart by then is left out until the next one.
inline constexpr std::chrono::seconds kAnswerMax{15};
// Too few hosts answer after a failure: they are tried again and again this long.
inline constexpr std::chrono::seconds kGatherMax{60};

// The wait before a restart: nothing after a steady attempt, else 1 s, doubled with each quick
// failure in a row up to 30 s. FAILURES_IN_A_ROW: quick ones, from 1; 0: the attempt was steady.
[[nodiscard]] std::chrono::milliseconds restart_delay(int failures_in_a_row);

// An attempt that has ended, or is about to.
struct EndedAttempt {
    TargetKind target_kind = TargetKind::kModel;
    int exit_code = 0;
    bool may_restart = false;  // a rank failed or a host was lost, and nobody asked for the end
    int restarts = 0;          // made before this attempt
    int restarts_max = 0;
};

enum class RestartVerdict {
    kEnd,          // the attempt ended well or was asked to end, or all restarts have been made
    kSameMistake,  // usage, config and input errors of a training job, which the same start would
                   // only meet again. Exit codes of other programs have no meaning here.
    kRestart,
};
[[nodiscard]] RestartVerdict decide_restart(const EndedAttempt& attempt);

// The hosts of an attempt, by place in the hostfile: the first MAX that are not bad, or nothing
// when fewer than MIN are left. REQUIRES: 1 <= nodes_min <= nodes_max.
[[nodiscard]] std::optional<std::vector<size_t>> choose_hosts(const std::vector<bool>& is_bad,
                                                              const NodeRange& range);

}  // namespace dslaunch::launch
