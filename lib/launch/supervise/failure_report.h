// The report that the user reads when a job failed.
#pragma once

#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "launch/supervise/rank_record.h"

namespace dslaunch::launch {

// A mistake that the culprit's own message tells whole (a wrong option, config or input, or what a
// machine, disk or checkpoint lacks before the first step): "dslaunch: error: MESSAGE". Otherwise
// the culprit with host, pid, end and its own message, after a hang the rank for which all wait,
// the culprit's last lines, what other ranks say that did not only lose a peer, its LOG file
// (empty: none), then the table of all ranks. Ends with a newline.
[[nodiscard]] std::string describe_failure(const std::vector<RankRecord>& ranks, size_t culprit,
                                           const std::deque<std::string>& last_lines,
                                           const std::string& log = {});

// Returns true if the message of RECORD says all, as of a mistake that the same command would meet
// again.
[[nodiscard]] bool is_told_whole(const RankRecord& record);

// "exit code 3", "killed by SIGSEGV (Segmentation fault), core dumped", "could not start: …",
// "running".
[[nodiscard]] std::string describe_end(const RankRecord& record);

// One line per rank: rank, host, pid, how it ended; many ranks of one host that ended alike share a
// line.
[[nodiscard]] std::string describe_ranks(const std::vector<RankRecord>& ranks);

}  // namespace dslaunch::launch
