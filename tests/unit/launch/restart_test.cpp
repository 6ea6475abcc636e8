#include "launch/restart.h"

#include "base/error.h"
#include "support/catch.h"

using namespace dslaunch;

TEST_CASE("an attempt takes the first hosts that answer, never fewer than asked for") {
    struct Row {
        std::string bad;  // one letter a host: x is bad
        NodeRange range;
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

TEST_CASE("the wait before a restart doubles with each quick failure up to half a minute") {
    const std::vector<std::pair<int, int64_t>> rows = {{0, 0},        {1, 1'000},  {2, 2'000},
                                                       {3, 4'000},    {5, 16'000}, {6, 30'000},
                                                       {100, 30'000}, {-1, 0}};
    for (const auto& [failures, milliseconds] : rows)
        CHECK(restart_delay(failures).count() == milliseconds);
}

TEST_CASE("mistakes of a training job are not tried again, a program's codes are its own") {
    for (const ExitCode code : {ExitCode::kUsage, ExitCode::kConfig, ExitCode::kInput}) {
        CHECK_FALSE(may_help(TargetKind::kTorchScript, static_cast<int>(code)));
        CHECK(may_help(TargetKind::kProgram, static_cast<int>(code)));
        CHECK(may_help(TargetKind::kPython, static_cast<int>(code)));
    }
    for (const ExitCode code : {ExitCode::kRankFailed, ExitCode::kHang, ExitCode::kHosts,
                                ExitCode::kSetup, ExitCode::kDisk})
        CHECK(may_help(TargetKind::kTorchScript, static_cast<int>(code)));
}
