// The launcher's knowledge of each rank, its conclusions from all of them, and their text for the
// user. Pure; one thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
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
    // Returns true if the rank's report or its exit code means that another rank went away.
    [[nodiscard]] bool only_lost_a_peer() const;
};

// Returns the index of the rank to blame; nothing: no rank failed. Ranks that only lost a peer or
// ended on request come after all others; among equals the first that ended. If a training job's
// ranks only lost a peer, it is the one that ended with 0 by itself before they were done.
[[nodiscard]] std::optional<size_t> find_culprit(TargetKind kind,
                                                 const std::vector<RankRecord>& ranks);

// The rank for which the others wait, by their heartbeats: one that has been silent for some
// intervals, or since its start, while others spoke; else the one that has done least. Nothing when
// no rank stands out.
struct BehindRank {
    size_t index = 0;
    // Time from its newest heartbeat to any rank's newest; the largest number: it never had one.
    std::chrono::duration<double> silence{};
};
[[nodiscard]] std::optional<BehindRank> find_behind(const std::vector<RankRecord>& ranks);

// Returns the exit code of an uninterrupted job, by the table of docs/help/exit-codes.md.
[[nodiscard]] int job_exit_code(TargetKind kind, const std::vector<RankRecord>& ranks);

// Finds the rank for which the others wait, by the heartbeats: every so many steps the time that
// each rank's lanes worked, by themselves, is compared with that time of the median rank.
// A rank is named when it works longer than the median rank by this share of the median's time …
inline constexpr double kStragglerShareMin = 0.20;
// … and by this share of a whole step: less makes nobody wait noticeably.
inline constexpr double kStragglerStepShareMin = 0.05;

class StragglerWatch {
  public:
    // INTERVAL_STEPS 0: says nothing.
    explicit StragglerWatch(int64_t interval_steps) : interval_steps_(interval_steps) {}

    // Looks at RANKS after each heartbeat. Returns a line when every rank has done INTERVAL_STEPS
    // more steps since the last look and one of them stands out; else nothing. Of two ranks the
    // faster one is the median.
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

// Returns "dslaunch: error: MESSAGE" for a mistake that the culprit's own message tells whole (a
// wrong option, config or input, or a lack of a machine, disk or checkpoint before the first step).
// Otherwise describes the culprit with host, pid, end and its own message, after a hang the rank
// for which all wait, the culprit's last lines, the messages of other ranks that did not only lose
// a peer, its LOG file (empty: none), then the table of all ranks. Ends with a newline.
[[nodiscard]] std::string describe_failure(const std::vector<RankRecord>& ranks, size_t culprit,
                                           const std::deque<std::string>& last_lines,
                                           const std::string& log = {});

// Returns true if the message of RECORD says all: the same command would meet the same mistake
// again.
[[nodiscard]] bool is_told_whole(const RankRecord& record);

// Returns "exit code 3", "killed by SIGSEGV (Segmentation fault), core dumped", "could not start:
// …", "running".
[[nodiscard]] std::string describe_end(const RankRecord& record);

// Returns one line per rank: rank, host, pid, how it ended. Ranks of one host that ended alike may
// share a line.
[[nodiscard]] std::string describe_ranks(const std::vector<RankRecord>& ranks);

}  // namespace dslaunch::launch
