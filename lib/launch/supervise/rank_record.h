// The launcher's knowledge of each rank, and what it concludes from all of them.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "launch/plan/job_spec.h"
#include "launch/protocol/control.h"
#include "launch/protocol/messages.h"

namespace dslaunch::launch {

struct RankRecord {
    int rank = 0;
    std::string host;
    int64_t pid = 0;
    bool started = false;
    bool ended = false;
    WorkerExited exited;                               // once ended
    bool told_to_end = false;                          // true: the rank ended after it was asked to
    std::string unknown_end;                           // not empty: nobody saw it end, in words
    int order = 0;                                     // order of the ends, from 1
    std::optional<AgentProblem> failure;               // the rank's last control frame
    std::optional<Heartbeat> heartbeat;                // the newest heartbeat
    std::chrono::steady_clock::time_point heard_at{};  // arrival of that heartbeat

    [[nodiscard]] bool failed() const {
        return ended && (exited.signal_number != 0 || exited.exit_status != 0);
    }
    // True if the rank's report or its exit code means that another rank went away.
    [[nodiscard]] bool only_lost_a_peer() const;
};

// The index of the rank to blame, or nothing when none failed. Ranks that only lost a peer or ended
// because we asked come after all others; among equals the first that ended. Where the ranks of a
// training job only lost a peer, it is the one that ended with 0 by itself before they were done.
[[nodiscard]] std::optional<size_t> find_culprit(TargetKind kind,
                                                 const std::vector<RankRecord>& ranks);

// The rank for which the others wait, by their heartbeats: one that has been silent for some
// intervals, or since its start, while others spoke, else the one that has done least. Nothing when
// no rank stands out.
struct BehindRank {
    size_t index = 0;
    // Between its newest heartbeat and that of any rank; the largest number: it never had one.
    std::chrono::duration<double> silence{};
};
[[nodiscard]] std::optional<BehindRank> find_behind(const std::vector<RankRecord>& ranks);

// The exit code of a job that was not interrupted, by the table of docs/help/exit-codes.md.
[[nodiscard]] int job_exit_code(TargetKind kind, const std::vector<RankRecord>& ranks);

}  // namespace dslaunch::launch
