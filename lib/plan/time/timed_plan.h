// The one simulator of plans: lanes of tasks that take seconds and wait for each other, run with a
// clock. Data path: a pipeline's schedule (pipeline/timed_schedule.h) or the step plans of
// ranks (predict/step_forecast.h) -> [here] -> what a step takes, when and where it stands still.
// Pure; a million tasks take about 0.1 s.
//
// Model: a lane runs its tasks one after the other, each as soon as those it waits for have ended.
// Tasks that share processors slow each other down; all others take what they take alone. Whoever
// sends goes on at once, for a link is a lane of its own. All lanes begin at 0.
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
    bool shares = false;  // processors with the other lanes that have the same
    Holding takes = {};   // what it adds to what its lane holds when it begins
    Holding gives = {};   // and takes away from it when it ends
    int waits_end = 0;    // in TimedLane::waits, which add() fills
};

struct TimedLane {
    int processors = -1;      // index of those that its tasks may share; -1: a link or a disk
    double speed_beside = 1;  // of a task that shares, while another lane's does too; 1: as alone
    std::vector<TimedTask> tasks = {};
    std::vector<TaskRef> waits = {};  // of all tasks, in their order

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
    double begin_s = 0;  // of its first task
    double end_s = 0;    // of its last task
    int live_max = 0;    // the most of what its tasks hold at once
    Bytes live_bytes_max;
};

struct TimedRun {
    std::vector<std::vector<TimedSpan>> spans;  // by lane, then task
    std::vector<LaneUse> lanes;
    double step_s = 0;  // to the end of the last task
    // The share of the step that lanes with processors stand still: of a pipeline its bubble. Of
    // 1F1B with parts of equal cost (stages - 1) / (micro_batches + stages - 1).
    double idle_share = 0;

    [[nodiscard]] double idle_share_of(size_t lane) const {
        return step_s > 0 ? 1 - lanes[lane].busy_s / step_s : 0;
    }
};

// REQUIRES: no task waits for ever.
[[nodiscard]] TimedRun run_timed_plan(const TimedPlan& plan);

// The same for plans that may wait for ever: their lanes have spans of the tasks before that.
[[nodiscard]] TimedRun try_timed_plan(const TimedPlan& plan);

}  // namespace dslaunch::plan
