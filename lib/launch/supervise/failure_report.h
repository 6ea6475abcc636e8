// The text about a failed job for the user: the rank to blame, its end and message, and all ranks.
// Pure.
#pragma once

#include <deque>
#include <string>
#include <vector>

#include "launch/supervise/rank_record.h"

namespace dslaunch::launch {

// Returns "dslaunch: error: MESSAGE" for a mistake that the culprit's own message explains
// completely (a wrong option, config or input, or a problem with a machine, disk or checkpoint
// before the first step). Otherwise describes, in this order: the culprit with its host, pid, end
// and own message; after a hang, the rank for which all others wait; the culprit's last lines; the
// messages of other ranks, unless they only lost a peer; the culprit's LOG file (empty: none); the
// table of all ranks. Ends with a newline.
[[nodiscard]] std::string describe_failure(const std::vector<RankRecord>& ranks, size_t culprit,
                                           const std::deque<std::string>& last_lines,
                                           const std::string& log = {});

// Returns true if the message of RECORD explains the failure completely: the same command would
// fail in the same way again.
[[nodiscard]] bool is_told_whole(const RankRecord& record);

// Returns "exit code 3", "killed by SIGSEGV (Segmentation fault), core dumped", "could not start:
// …", "running".
[[nodiscard]] std::string describe_end(const RankRecord& record);

// Returns one line per rank: rank, host, pid, how it ended. Ranks of one host that ended alike may
// share a line.
[[nodiscard]] std::string describe_ranks(const std::vector<RankRecord>& ranks);

}  // namespace dslaunch::launch
