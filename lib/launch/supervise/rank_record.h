// The facts that the launcher has about each rank, and its conclusions from all of them. Pure; one
// thread.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "launch/plan/job_spec.h"
#include "launch/protocol/control.h"
#include "launch/protocol/messages.h"

namespace dslaunch::launch {

// The facts about one rank, from its start to its end.
struct RankRecord {
    int rank = 0;
    std::string host;
    size_t host_index = 0;  // in JobSpec::nodes
    int64_t pid = 0;
    bool started = false;
    bool ended = false;
    WorkerExited exited;                               // once ended
    bool told_to_end = false;                          // true: the rank ended after it was asked to
    std::string unknown_end;                           // why its end was not seen; empty if it was
    int order = 0;                                     // order of the ends, from 1
    std::optional<AgentProblem> failure;               // the rank's last control frame
    std::optional<Heartbeat> heartbeat;                // the newest heartbeat
    std::chrono::steady_clock::time_point heard_at{};  // arrival of the newest heartbeat

    // Returns true if the rank ended with a signal or an exit code other than 0.
    [[nodiscard]] bool failed() const {
        return ended && (exited.signal_number != 0 || exited.exit_status != 0);
    }
    // Returns true if the rank's report or its exit code says only that another rank went away.
    [[nodiscard]] bool only_lost_a_peer() const;
};

// Returns the index of the rank to blame; nothing if no rank failed. A rank that failed by itself
// comes first, then a rank that only lost a peer, then a rank that was asked to end. Within each of
// these groups, the rank that ended first is blamed. In a training job, if the result would be a
// rank that only lost a peer, the first rank that ended by itself with exit code 0 is blamed
// instead.
[[nodiscard]] std::optional<size_t> find_culprit(TargetKind kind,
                                                 const std::vector<RankRecord>& ranks);

// The rank for which the others wait, according to the heartbeats. It is a rank that has stopped
// sending heartbeats, or has never sent one, while other ranks do. If all ranks send heartbeats, it
// is the rank that has done the fewest steps.
struct BehindRank {
    size_t index = 0;
    // The time between this rank's newest heartbeat and the newest heartbeat of any rank; the
    // largest number if this rank never sent one.
    std::chrono::duration<double> silence{};
};
// Returns the rank for which the others wait; nothing if no rank stands out.
[[nodiscard]] std::optional<BehindRank> find_behind(const std::vector<RankRecord>& ranks);

// Returns the state of RANKS at NOW as one JSON object {"ranks"}, for the job's record. Each rank
// has its number, host, pid and state ("starting", "running" or "ended"). A rank that has ended
// also has its exit status and signal. A rank with a heartbeat also has the heartbeat's age in ms,
// its position, the steps done and the busy time of each lane in ms.
[[nodiscard]] std::string ranks_json(const std::vector<RankRecord>& ranks,
                                     std::chrono::steady_clock::time_point now);

// Returns the exit code of an uninterrupted job, according to the table in docs/help/exit-codes.md.
[[nodiscard]] int job_exit_code(TargetKind kind, const std::vector<RankRecord>& ranks);

}  // namespace dslaunch::launch
