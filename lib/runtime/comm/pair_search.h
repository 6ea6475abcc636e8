// The search of `dslaunch health`: one rank of each host measures the ways to all others, round by
// round, and measures suspicious ones once more. health/health_schedule.h says who measures with
// whom, health/health_verdict.h what is suspicious. It blocks its caller; one thread.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "health/health_record.h"
#include "runtime/comm/board.h"
#include "runtime/comm/link_probe.h"
#include "runtime/comm/ranks/topology.h"

namespace dslaunch::runtime {

struct PairSearchOptions {
    Topology topology;
    std::string address;  // own address to listen on and send from, in digits
    ProbeLimits limits;
};

struct PairSearchSeams {
    Board& board;
    std::function<void(const health::HealthRecord&)> report;
    // Says where this rank is in the search, and how long that may take at most.
    std::function<void(const std::string& where, Duration limit)> enter;
};

enum class PairSearchResult { kHealthy, kFound, kBroken };

// Returns node 0's conclusion. kBroken means that some path does not work at all and collectives
// would wait for it. Throws Error{kHang} naming the rank that does not come to a round (and reports
// it as a fault), and {kSetup} if this host cannot listen. REQUIRES: local rank 0.
[[nodiscard]] PairSearchResult search_pairs(const PairSearchOptions& options,
                                            const PairSearchSeams& seams);

}  // namespace dslaunch::runtime
