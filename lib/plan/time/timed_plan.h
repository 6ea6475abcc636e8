// The one simulator of plans: lanes of tasks that take seconds and wait for each other, run with a
// clock. Data path: a pipeline's schedule (pipeline/timed_schedule.h) or the step plans of
// ranks (predict/step_forecast.h) -> [here] -> the time of a step, and idle times. Pure; a million
// tasks take about 0.1 s.
//
// Model: a lane runs its tasks one after the other, each as soon as the tasks before it in time
// have ended. Tasks that share processors slow each other down; all others take their time alone. A
// sender goes on at once, since a link is a lane of its own. All lanes begin at 0.
#pragma once

#include <span>
#include <vector>

#include "base/bytes.h"

namespace dslaunch::plan {

struct TaskRef {
    int lane = -1;
    int index = 0;  // among the lane's tasks
};

// Micro batches whose activations are held, and bytes.
struct Holding {
    int live = 0;
    Bytes bytes;
};

struct TimedTask {
    double seconds = 0;   // alone on its processors
    bool shares = false;  // true: shares its lane's processors with other lanes that have the same
    Holding takes = {};   // added to its lane's holding when the task begins
    Holding gives = {};   // subtracted from it when the task ends
    int waits_end = 0;    // end of its waits in TimedLane::waits, which add() fills
};

struct TimedLane {
    int processors = -1;      // index of the processors that its tasks may share; -1: a link or a
                              // disk
    double speed_beside = 1;  // speed of a task that shares, while a task of another lane does too;
                              // 1: as alone
    std::vector<TimedTask> tasks = {};
    std::vector<TaskRef> waits = {};  // waits of all tasks, in order

    void add(TimedTask task, std::span<const TaskRef> waits_for = {});
};

struct TimedPlan {
    std::vector<TimedLane> lanes;
};

// UNITS: seconds.
struct TimedSpan {
    double begin_s = 0;
    double end_s = 0;
};

struct LaneUse {
    double busy_s = 0;
    double begin_s = 0;  // begin of the first task
    double end_s = 0;    // end of the last task
    int live_max = 0;    // most micro batches that its tasks hold at once
    Bytes live_bytes_max;
};

struct TimedRun {
    std::vector<std::vector<TimedSpan>> spans;  // by lane, then task
    std::vector<LaneUse> lanes;
    double step_s = 0;  // to the end of the last task
    // The share of the step in which lanes with processors are idle: the bubble of a pipeline. For
    // 1F1B with parts of equal cost it is (stages - 1) / (micro_batches + stages - 1).
    double idle_share = 0;

    [[nodiscard]] double idle_share_of(size_t lane) const {
        return step_s > 0 ? 1 - lanes[lane].busy_s / step_s : 0;
    }
};

// Runs the plan. REQUIRES: no task waits for ever.
[[nodiscard]] TimedRun run_timed_plan(const TimedPlan& plan);

// Runs a plan that may wait for ever: its lanes have spans of the tasks before that.
[[nodiscard]] TimedRun try_timed_plan(const TimedPlan& plan);

}  // namespace dslaunch::plan
