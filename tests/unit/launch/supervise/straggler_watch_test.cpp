#include "launch/supervise/straggler_watch.h"

#include <fmt/format.h>

#include "support/catch.h"

using namespace dslaunch;
using namespace dslaunch::launch;

namespace {

// Ranks that send a heartbeat for each step of STEP_MS, and compute for WORK_MS[rank] of it.
class Ranks {
  public:
    Ranks(std::vector<double> work_ms, double step_ms)
        : work_ms_(std::move(work_ms)), step_ms_(step_ms), records_(work_ms_.size()) {
        for (size_t i = 0; i < records_.size(); ++i) {
            records_[i].rank = static_cast<int>(i);
            records_[i].host = fmt::format("n{}", i);
        }
    }
    // Returns the lines that the watch gives over STEPS steps.
    std::vector<std::string> run(StragglerWatch& watch, int steps) {
        std::vector<std::string> lines;
        for (int step = 0; step < steps; ++step) {
            ++steps_;
            for (size_t i = 0; i < records_.size(); ++i) {
                work_total_ms_.resize(records_.size());
                work_total_ms_[i] += work_ms_[i];
                Heartbeat heartbeat;
                heartbeat.instructions_done = static_cast<uint64_t>(steps_) * 10;
                heartbeat.instructions_per_step = 10;
                heartbeat.lanes = {{"compute", std::chrono::nanoseconds(
                                                   static_cast<int64_t>(work_total_ms_[i] * 1e6))}};
                if (other_lane_ms_.size() > i && other_lane_ms_[i] >= 0)
                    heartbeat.lanes.push_back(
                        {other_lane_, std::chrono::nanoseconds(
                                          static_cast<int64_t>(steps_ * other_lane_ms_[i] * 1e6))});
                records_[i].heartbeat = heartbeat;
                records_[i].heard_at =
                    std::chrono::steady_clock::time_point() +
                    std::chrono::microseconds(static_cast<int64_t>(steps_ * step_ms_ * 1e3));
                for (const std::string& line : watch.look(records_)) lines.push_back(line);
            }
        }
        return lines;
    }
    std::vector<double> work_ms_;
    double step_ms_;
    std::vector<RankRecord> records_;
    std::string other_lane_;
    std::vector<double> other_lane_ms_;  // per step; below 0: the rank does not have the lane

  private:
    int steps_ = 0;
    std::vector<double> work_total_ms_;
};

}  // namespace

TEST_CASE("the rank that works longest is named, with its host, its lane and how much more") {
    struct Row {
        std::vector<double> work_ms;
        double step_ms;
        std::string words;  // empty: nothing is said
    };
    const std::vector<Row> rows = {
        {{30, 30, 45, 30},
         50,
         "rank 2 on n2 has worked 45.0 ms per step in its compute lane since step 1, but the "
         "median rank works 30.0 ms; the straggler takes 50 % longer, which is 30 % of the step"},
        {{30, 60}, 60, "rank 1 on n1 has worked 60.0 ms"},
        {{60, 30}, 60, "rank 0 on n0"},
        {{30, 30, 30}, 40, ""},
        {{30, 35, 31}, 40, ""},  // 13 % more than the median
        {{1, 2, 1}, 100, ""},    // twice as much, but nobody waits for 1 ms of 100
        {{30, 30, 90, 91}, 100, "rank 3 on n3"},
        {{30}, 30, ""},  // nobody to compare with
        {{0, 0, 20}, 40, "rank 2 on n2"},
    };
    for (const Row& row : rows) {
        StragglerWatch watch(10);
        const auto lines = Ranks(row.work_ms, row.step_ms).run(watch, 11);
        INFO(row.words);
        REQUIRE(lines.size() == (row.words.empty() ? 0 : 1));
        if (!lines.empty()) CHECK_THAT(lines[0], Catch::Contains(row.words));
    }
}

TEST_CASE("a slow rank is named once when it begins, and once when it ends") {
    Ranks ranks({30, 30}, 60);
    StragglerWatch watch(10);
    CHECK(ranks.run(watch, 21).empty());
    ranks.work_ms_ = {30, 60};
    const auto begin = ranks.run(watch, 40);
    REQUIRE(begin.size() == 1);
    CHECK_THAT(
        begin[0],
        Catch::Contains(
            "rank 1 on n1 has worked 60.0 ms per step in its compute lane since step 21, but"));
    // Still above half of the limits.
    ranks.work_ms_ = {30, 34};
    CHECK(ranks.run(watch, 30).empty());
    ranks.work_ms_ = {30, 31};
    const auto end = ranks.run(watch, 30);
    REQUIRE(end.size() == 1);
    CHECK_THAT(end[0], Catch::Contains("rank 1 on n1, which was slow in its compute lane since "
                                       "step 21, is as fast as the others again at step 1"));
    CHECK(ranks.run(watch, 50).empty());
    StragglerWatch off(0);
    CHECK(Ranks({30, 60}, 60).run(off, 100).empty());
}

TEST_CASE("another rank takes the place of the slow one only if it keeps even that one waiting") {
    Ranks ranks({30, 60, 30, 30}, 120);
    StragglerWatch watch(10);
    CHECK(ranks.run(watch, 21).size() == 1);
    ranks.work_ms_ = {30, 60, 65, 30};
    CHECK(ranks.run(watch, 30).empty());
    ranks.work_ms_ = {30, 60, 110, 30};
    const auto lines = ranks.run(watch, 20);
    REQUIRE(lines.size() == 2);
    CHECK_THAT(lines[0],
               Catch::Contains("rank 1 on n1") && Catch::Contains("no longer the slowest"));
    CHECK_THAT(lines[1], Catch::Contains("rank 2 on n2 has worked"));
}

TEST_CASE("the lane is named, and compared only among the ranks that have it") {
    for (const char* lane : {"link", "disk"}) {
        INFO(lane);
        Ranks ranks({30, 30, 30, 30}, 100);
        ranks.other_lane_ = lane;
        ranks.other_lane_ms_ = {20, -1, 50, -1};
        StragglerWatch watch(10);
        const auto lines = ranks.run(watch, 11);
        REQUIRE(lines.size() == 1);
        CHECK_THAT(lines[0], Catch::Contains(fmt::format(
                                 "rank 2 on n2 has worked 50.0 ms per step in its {} lane", lane)));
        ranks.other_lane_ms_ = {20, -1, -1, -1};
        StragglerWatch alone(10);
        Ranks one({30, 30}, 100);
        one.other_lane_ = lane;
        one.other_lane_ms_ = {90, -1};
        CHECK(one.run(alone, 30).empty());
    }
}

TEST_CASE(
    "steps of many seconds are compared after a minute, not after all steps of the interval") {
    Ranks ranks({5000, 9000}, 10'000);
    StragglerWatch watch(100);
    CHECK(ranks.run(watch, 6).empty());
    CHECK(ranks.run(watch, 2).size() == 1);
}

TEST_CASE("ranks that measure nothing, or have not all spoken, give no line") {
    Ranks ranks({30, 60, 30}, 60);
    StragglerWatch watch(1);
    ranks.records_[1].heartbeat.reset();
    std::vector<RankRecord> silent(3);
    CHECK(watch.look(silent).empty());
    silent[0].heartbeat = Heartbeat{10, 10, "step 1", {}};
    silent[1] = silent[2] = silent[0];
    for (int i = 0; i < 5; ++i) {
        for (RankRecord& record : silent) record.heartbeat->instructions_done += 10;
        CHECK(watch.look(silent).empty());
    }
}
