#include "launch/supervise/restart_rules.h"

#include "base/error.h"
#include "support/catch.h"

using namespace dslaunch;
using namespace dslaunch::launch;

TEST_CASE("an attempt takes the first hosts that answer, never fewer than asked for") {
    struct Row {
        std::string bad;  // one letter per host: x is bad
        NodeCounts range;
        std::optional<std::vector<size_t>> chosen;
    };
    const std::vector<Row> rows = {
        {"...", {1, 3}, {{0, 1, 2}}},  {"x..", {1, 3}, {{1, 2}}},  {".x.", {3, 3}, std::nullopt},
        {".x..", {2, 2}, {{0, 2}}},    {"....", {1, 2}, {{0, 1}}}, {"xx.", {1, 3}, {{2}}},
        {"xxx", {1, 3}, std::nullopt}, {".", {1, 1}, {{0}}},       {"x", {1, 1}, std::nullopt},
        {"..", {1, 65'536}, {{0, 1}}},
    };
    for (const Row& row : rows) {
        std::vector<bool> bad;
        for (const char c : row.bad) bad.push_back(c == 'x');
        INFO(row.bad << " " << row.range.min << ":" << row.range.max);
        CHECK(choose_hosts(bad, row.range) == row.chosen);
    }
}

TEST_CASE("an attempt takes as many hosts as the job can run on") {
    const HostsFit powers = [](const std::vector<size_t>& hosts) {
        return (hosts.size() & (hosts.size() - 1)) == 0;
    };
    using Chosen = std::optional<std::vector<size_t>>;
    CHECK(choose_hosts({false, false, false}, {1, 3}, powers) == Chosen{{0, 1}});
    CHECK(choose_hosts({true, false, false, false, false}, {1, 5}, powers) == Chosen{{1, 2, 3, 4}});
    CHECK(choose_hosts({false, true, false, false}, {3, 4}, powers) == std::nullopt);
    // The hosts have 2, 1 and 1 ranks, and the job cannot run on 3 ranks.
    ElasticRules rules;
    rules.nodes = {1, 3};
    rules.hosts = {"a", "b", "c"};
    rules.plan = [](const std::vector<size_t>& chosen) {
        int ranks = 0;
        for (const size_t host : chosen) ranks += host == 0 ? 2 : 1;
        std::vector<PlannedNode> nodes(1);
        nodes.front().workers.resize(1);
        nodes.front().workers.front().environment.world_size = ranks;
        return nodes;
    };
    rules.fits = [](int ranks) { return ranks != 3; };
    CHECK(choose_hosts({false, false, false}, rules) == Chosen{{0, 1, 2}});
    CHECK(choose_hosts({false, false, true}, rules) == Chosen{{0}});
    rules.fits = {};
    CHECK(choose_hosts({false, false, true}, rules) == Chosen{{0, 1}});
}

TEST_CASE("the wait before a restart doubles with each quick failure up to half a minute") {
    const std::vector<std::pair<int, int64_t>> rows = {{0, 0},        {1, 1'000},  {2, 2'000},
                                                       {3, 4'000},    {5, 16'000}, {6, 30'000},
                                                       {100, 30'000}, {-1, 0}};
    for (const auto& [failures, milliseconds] : rows)
        CHECK(restart_delay(failures).count() == milliseconds);
}

TEST_CASE("mistakes of a training job are not tried again, a program's codes are its own") {
    using enum RestartVerdict;
    struct Row {
        ExitCode code;
        bool may_restart;
        int restarts;
        RestartVerdict job;
        RestartVerdict program;
    };
    // The job allows two restarts.
    const std::vector<Row> rows = {
        {ExitCode::kRankFailed, true, 0, kRestart, kRestart},
        {ExitCode::kRankFailed, true, 1, kRestart, kRestart},
        {ExitCode::kRankFailed, true, 2, kEnd, kEnd},
        {ExitCode::kRankFailed, false, 0, kEnd, kEnd},
        {ExitCode::kHang, true, 0, kRestart, kRestart},
        {ExitCode::kHosts, true, 0, kRestart, kRestart},
        {ExitCode::kSetup, true, 0, kRestart, kRestart},
        {ExitCode::kDisk, true, 0, kRestart, kRestart},
        {ExitCode::kUsage, true, 0, kSameMistake, kRestart},
        {ExitCode::kConfig, true, 0, kSameMistake, kRestart},
        {ExitCode::kInput, true, 1, kSameMistake, kRestart},
        // Restarts that would not happen anyway are not mentioned.
        {ExitCode::kInput, true, 2, kEnd, kEnd},
        {ExitCode::kConfig, false, 0, kEnd, kEnd},
        {ExitCode::kOk, false, 0, kEnd, kEnd},
    };
    for (const Row& row : rows) {
        EndedAttempt attempt{TargetKind::kModel, static_cast<int>(row.code), row.may_restart,
                             row.restarts, 2};
        INFO(attempt.exit_code << " after " << row.restarts);
        CHECK(decide_restart(attempt) == row.job);
        attempt.target_kind = TargetKind::kProgram;
        CHECK(decide_restart(attempt) == row.program);
        attempt.target_kind = TargetKind::kPython;
        CHECK(decide_restart(attempt) == row.program);
    }
}
