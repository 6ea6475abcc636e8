// What the user reads when a job failed.
#pragma once

#include <deque>
#include <string>
#include <vector>

#include "launch/rank_record.h"

namespace dslaunch {

// The culprit with host, pid, end and its own message, its last lines, then the table of all ranks.
// Ends with a newline.
[[nodiscard]] std::string describe_failure(const std::vector<RankRecord>& ranks, size_t culprit,
                                           const std::deque<std::string>& last_lines);

// One line per rank: rank, host, pid, how it ended.
[[nodiscard]] std::string describe_ranks(const std::vector<RankRecord>& ranks);

}  // namespace dslaunch
