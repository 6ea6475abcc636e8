// The simulator of all plans. It runs lanes of tasks with a clock. Tasks take seconds and wait for
// each other. Data path: a pipeline's schedule (pipeline/timed_schedule.h) or the step plans of
// ranks (predict/step_forecast.h) -> [here] -> the time of a step, and idle times. Pure; a million
// tasks take about 0.1 s.
//
// Model: a lane runs its tasks one after the other. A task begins as soon as all tasks that it
// waits for have ended. Tasks that share processors slow each other down; every other task takes
// its own time. A sender continues at once, since a link is a separate lane. All lanes begin at 0.
#pragma once

#include <span>
#include <vector>

#include "base/bytes.h"

namespace dslaunch::plan {

// The place of a task in a plan.
struct TaskRef {
    int lane = -1;
    int index = 0;  // among the lane's tasks
};

// The number of micro batches whose activations are held, and their bytes.
struct Holding {
    int live = 0;
    Bytes bytes;
};

// A task of a lane. TimedLane::waits contains its waits.
struct TimedTask {
    double seconds = 0;   // duration if it is alone on its processors
    bool shares = false;  // true: shares processors with lanes that have the same `processors`
    Holding takes = {};   // added to its lane's holding when the task begins
    Holding gives = {};   // subtracted from it when the task ends
    int waits_end = 0;    // end of this task's waits in TimedLane::waits; add() sets it
};

// Tasks that run one after the other.
struct TimedLane {
    int processors = -1;      // index of the processors that its tasks may share; -1: a link or a
                              // disk
    double speed_beside = 1;  // speed of a task while another lane uses the processors; 1: full
                              // speed
    std::vector<TimedTask> tasks = {};
    std::vector<TaskRef> waits = {};  // waits of all tasks, in order

    // Adds TASK to the end of the lane. It begins after the tasks in WAITS_FOR have ended.
    void add(TimedTask task, std::span<const TaskRef> waits_for = {});
};

// Lanes that run side by side.
struct TimedPlan {
    std::vector<TimedLane> lanes;
};

// UNITS: seconds.
struct TimedSpan {
    double begin_s = 0;
    double end_s = 0;
};

// The use of one lane during a run. UNITS: seconds.
struct LaneUse {
    double busy_s = 0;
    double begin_s = 0;  // begin of the first task
    double end_s = 0;    // end of the last task
    int live_max = 0;    // largest number of micro batches that its tasks hold at once
    Bytes live_bytes_max;
};

// The result of a run.
struct TimedRun {
    std::vector<std::vector<TimedSpan>> spans;  // by lane, then task
    std::vector<LaneUse> lanes;
    double step_s = 0;  // to the end of the last task
    // The fraction of the step during which lanes with processors are idle: for a pipeline, the
    // bubble. For 1F1B with parts of equal cost it is (stages - 1) / (micro_batches + stages - 1).
    double idle_share = 0;

    // Returns the fraction of the step during which LANE, an index, is idle.
    [[nodiscard]] double idle_share_of(size_t lane) const {
        return step_s > 0 ? 1 - lanes[lane].busy_s / step_s : 0;
    }
};

// Runs the plan. REQUIRES: no task waits for ever.
[[nodiscard]] TimedRun run_timed_plan(const TimedPlan& plan);

// Runs a plan in which tasks may wait for ever. The result has spans only for the tasks that end.
[[nodiscard]] TimedRun try_timed_plan(const TimedPlan& plan);

}  // namespace dslaunch::plan
