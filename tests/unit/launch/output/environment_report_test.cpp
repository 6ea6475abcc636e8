#include "launch/output/environment_report.h"

#include "support/catch.h"

using namespace dslaunch;
using namespace dslaunch::launch;

TEST_CASE("what is equal is shown once, what differs by host, a rank's own only by name") {
    std::vector<RankVariables> ranks;
    for (int rank = 0; rank < 4; ++rank) {
        const std::string host = rank < 2 ? "n0" : "n1";
        RankVariables one{rank, host, {{"HOME", "/root"}, {"RANK", std::to_string(rank)}}};
        one.variables.emplace_back("OMP_NUM_THREADS", rank < 2 ? "2" : "4");
        if (rank < 2) one.variables.emplace_back("NCCL_DEBUG", "INFO");
        if (rank != 1) one.variables.emplace_back("ODD", "a\n\x1b");
        one.variables.emplace_back("HF_TOKEN", "canary-" + host);
        ranks.push_back(one);
    }
    const std::string text = describe_environments(ranks);
    CHECK(text ==
          "dslaunch: environment of all 4 ranks:\n"
          "  HOME=/root\n"
          "each rank has its own: RANK\n"
          "these differ:\n"
          "  HF_TOKEN=(hidden)  on n0\n"
          "  HF_TOKEN=(hidden)  on n1\n"
          "  NCCL_DEBUG=INFO  on n0\n"
          "  NCCL_DEBUG=(not set)  on n1\n"
          "  ODD=a\\x0a\\x1b  on ranks 0, 2, 3\n"
          "  ODD=(not set)  on ranks 1\n"
          "  OMP_NUM_THREADS=2  on n0\n"
          "  OMP_NUM_THREADS=4  on n1\n");
}

TEST_CASE("hosts that got the same say so in one line") {
    const std::vector<RankVariables> ranks = {{0, "n0", {{"A", "1"}}}, {1, "n1", {{"A", "1"}}}};
    CHECK(describe_environments(ranks) ==
          "dslaunch: environment of all 2 ranks:\n  A=1\nnothing else differs between hosts\n");
}
