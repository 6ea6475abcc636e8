// The simulator of plans alone: lanes, waits, shared processors, and memory. Its front ends have
// tests of their own.
#include "plan/time/timed_plan.h"

#include <random>

#include "support/catch.h"

namespace dslaunch {

using namespace plan;

namespace {

TimedLane worker(int processors, double speed_beside, std::initializer_list<double> seconds) {
    TimedLane lane{processors, speed_beside};
    for (const double task_s : seconds) lane.add({.seconds = task_s, .shares = true});
    return lane;
}

}  // namespace

TEST_CASE("a lane runs its tasks in order, each when those it waits for have ended") {
    TimedPlan plan;
    plan.lanes.resize(3);
    plan.lanes[0].add({.seconds = 2});
    const TaskRef late[] = {{1, 1}, {2, 0}};
    plan.lanes[0].add({.seconds = 1}, late);
    plan.lanes[1].add({.seconds = 1});
    const TaskRef first = {0, 0};
    plan.lanes[1].add({.seconds = 3}, {&first, 1});
    plan.lanes[2].add({.seconds = 4});
    const TimedRun run = run_timed_plan(plan);
    CHECK(run.spans[1][1].begin_s == 2);
    CHECK(run.spans[0][1].begin_s == 5);
    CHECK(run.step_s == 6);
    CHECK(run.lanes[0].busy_s == 3);
    CHECK(run.lanes[1].begin_s == 0);
    CHECK(run.lanes[1].end_s == 5);
    CHECK(run.idle_share_of(1) == Approx(1 - 4.0 / 6));
}

TEST_CASE("lanes that share processors slow each other down while both run") {
    TimedPlan plan;
    // Ten seconds of work beside three seconds of work. The latter take six seconds, in which the
    // first lane does three seconds of its own.
    plan.lanes = {worker(0, 0.5, {10}), worker(0, 0.5, {3})};
    TimedRun run = run_timed_plan(plan);
    CHECK(run.lanes[1].end_s == 6);
    CHECK(run.lanes[0].end_s == 6 + 7);
    CHECK(run.idle_share == Approx(1 - (13.0 + 6) / (2 * 13)));
    // Unequal speeds: the second lane ends after 4 s, of which the first lane loses a quarter.
    plan.lanes = {worker(0, 0.75, {10}), worker(0, 0.25, {1})};
    CHECK(run_timed_plan(plan).step_s == 10 + 4 * 0.25);
    // Other processors, or a task that needs none, slow nobody down.
    plan.lanes = {worker(0, 0.5, {10}), worker(1, 0.5, {3})};
    CHECK(run_timed_plan(plan).step_s == 10);
    plan.lanes = {worker(0, 0.5, {10}), worker(0, 0.5, {3})};
    plan.lanes[1].tasks[0].shares = false;
    CHECK(run_timed_plan(plan).step_s == 10);
}

TEST_CASE("lanes that share without loss do all their work in the time of its sum") {
    std::mt19937 random(5);
    std::uniform_real_distribution<double> seconds(0.1, 3);
    for (int round = 0; round < 20; ++round) {
        TimedPlan plan;
        double sum_s = 0;
        plan.lanes.assign(2, {0, 0.5});
        for (TimedLane& lane : plan.lanes)
            for (int i = 0; i < 50; ++i) {
                lane.add({.seconds = seconds(random), .shares = true});
                sum_s += lane.tasks.back().seconds;
            }
        const TimedRun run = run_timed_plan(plan);
        CHECK(run.step_s == Approx(sum_s));
        for (const std::vector<TimedSpan>& spans : run.spans)
            for (size_t i = 1; i < spans.size(); ++i) CHECK(spans[i].begin_s == spans[i - 1].end_s);
    }
}

TEST_CASE("what tasks hold is counted lane by lane, at the begin and the end of each") {
    TimedPlan plan;
    plan.lanes.resize(1);
    plan.lanes[0].add({.takes = {1, Bytes{10}}});
    plan.lanes[0].add({.takes = {1, Bytes{10}}, .gives = {1, Bytes{15}}});
    plan.lanes[0].add({.takes = {1, Bytes{20}}});
    const LaneUse use = run_timed_plan(plan).lanes[0];
    CHECK(use.live_max == 2);
    CHECK(use.live_bytes_max == Bytes{25});
}

TEST_CASE("lanes that wait for each other for ever run up to there") {
    TimedPlan plan;
    plan.lanes.resize(2);
    for (const int lane : {0, 1}) {
        plan.lanes[lane].add({.seconds = 1});
        const TaskRef later = {1 - lane, 2};
        plan.lanes[lane].add({.seconds = 1}, {&later, 1});
        plan.lanes[lane].add({.seconds = 1});
    }
    const TimedRun run = try_timed_plan(plan);
    CHECK(run.spans[0].size() == 1);
    CHECK(run.spans[1].size() == 1);
}

}  // namespace dslaunch
