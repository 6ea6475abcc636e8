// The search of `dslaunch health` for slow links: one rank of each host measures the paths to all
// other hosts, round by round, and measures suspicious paths once more. health/health_schedule.h
// decides which hosts measure each other, health/health_verdict.h which paths are suspicious. The
// search runs in its caller's thread and blocks it.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "health/health_record.h"
#include "runtime/comm/board.h"
#include "runtime/comm/link_probe.h"
#include "runtime/comm/ranks/topology.h"

namespace dslaunch::runtime {

// This host's place in a search, and the limits of each probe.
struct PairSearchOptions {
    Topology topology;
    std::string address;  // own numeric address, to listen on and send from
    ProbeLimits limits;
};

// The functions by which a search talks to other ranks and to its caller.
struct PairSearchSeams {
    Board& board;
    std::function<void(const health::HealthRecord&)> report;
    // Reports the step of the search that this rank begins, and the most time that the step may
    // take.
    std::function<void(const std::string& where, Duration limit)> enter;
};

// The conclusion of a search: all paths are good, some are slow or wrong, or one does not work.
enum class PairSearchResult { kHealthy, kFound, kBroken };

// Returns node 0's conclusion. kBroken means that a path does not work at all, so collectives would
// wait forever. Throws Error{kHang} if a rank does not come to a round; the error names the rank,
// which is also reported as a fault. Throws Error{kSetup} if this host cannot listen. REQUIRES:
// local rank 0.
[[nodiscard]] PairSearchResult search_pairs(const PairSearchOptions& options,
                                            const PairSearchSeams& seams);

}  // namespace dslaunch::runtime
