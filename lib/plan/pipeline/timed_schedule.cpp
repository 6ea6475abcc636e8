#include "plan/pipeline/timed_schedule.h"

#include <algorithm>
#include <limits>

#include "base/check.h"
#include "plan/time/machine_rates.h"

namespace dslaunch::plan {
namespace {

class ScheduleTiming {
  public:
    ScheduleTiming(const PipelineSchedule& schedule, const std::vector<PartCost>& costs)
        : schedule_(schedule),
          costs_(costs),
          sends_(std::ranges::any_of(costs, [](const PartCost& cost) { return cost.send_s > 0; })),
          arrivals_(2 * costs.size() * static_cast<size_t>(schedule.shape.micro_batches)) {}

    TimedPlan make() {
        const int stages = schedule_.shape.stages;
        // Each stage has two links, one to the stage before it and one to the stage after it; the
        // first and the last stage are neighbours too.
        plan_.lanes.resize(static_cast<size_t>(stages) * (sends_ ? 3 : 1));
        for (int stage = 0; stage < stages; ++stage) note_arrivals(stage);
        for (int stage = 0; stage < stages; ++stage) add_works(stage);
        return std::move(plan_);
    }

  private:
    // Returns the task that delivers the values which WORK on PART needs from another part. A
    // forward needs the inputs of PART, a backward needs the gradients of its outputs.
    TaskRef& arrival(int part, const PipelineWork& work) {
        const size_t cell =
            static_cast<size_t>(part) * static_cast<size_t>(schedule_.shape.micro_batches) +
            static_cast<size_t>(work.micro_batch);
        return arrivals_[2 * cell + (work.kind == WorkKind::kForward ? 0 : 1)];
    }
    [[nodiscard]] int part_at(int stage, const PipelineWork& work) const {
        return part_of(schedule_.kind, schedule_.shape, {stage, work.chunk});
    }

    void note_arrivals(int stage) {
        const std::vector<PipelineWork>& works = schedule_.stages[stage];
        for (size_t i = 0; i < works.size(); ++i) {
            if (works[i].kind == WorkKind::kBackwardWeight) continue;
            const int part = part_at(stage, works[i]);
            const int to = works[i].kind == WorkKind::kForward ? part + 1 : part - 1;
            if (to < 0 || to == schedule_.shape.parts()) continue;
            TaskRef& there = arrival(to, works[i]);
            if (there.lane >= 0) continue;  // a repeated work gave its result in its first run
            there = {stage, static_cast<int>(i)};
            const int receiver = place_of_part(schedule_.kind, schedule_.shape, to).stage;
            if (!sends_ || receiver == stage) continue;
            const int stages = schedule_.shape.stages;
            const int link = stages + 2 * stage + (receiver == (stage + 1) % stages ? 0 : 1);
            TimedLane& lane = plan_.lanes[link];
            lane.add({.seconds = costs_[std::min(part, to)].send_s}, {&there, 1});
            there = {link, static_cast<int>(lane.tasks.size()) - 1};
        }
    }

    void add_works(int stage) {
        TimedLane& lane = plan_.lanes[stage];
        lane.processors = stage;
        const std::vector<PipelineWork>& works = schedule_.stages[stage];
        lane.tasks.reserve(works.size());
        for (const PipelineWork& work : works) {
            const int part = part_at(stage, work);
            const TimedTask task = timed_work(work.kind, costs_[part]);
            const int first = work.kind == WorkKind::kForward ? 0 : schedule_.shape.parts() - 1;
            if (part == first || work.kind == WorkKind::kBackwardWeight) {
                lane.add(task);
                continue;
            }
            TaskRef from = arrival(part, work);
            if (from.lane < 0) from = {stage, std::numeric_limits<int>::max()};  // never
            lane.add(task, {&from, 1});
        }
    }

    const PipelineSchedule& schedule_;
    const std::vector<PartCost>& costs_;
    bool sends_;
    std::vector<TaskRef> arrivals_;  // by part, micro batch, and values or gradients
    TimedPlan plan_;
};

}  // namespace

TimedTask timed_work(WorkKind kind, const PartCost& cost) {
    const Bytes both = cost.activations + cost.backward_takes;
    switch (kind) {
        case WorkKind::kForward:
            return {.seconds = cost.forward_s, .takes = {1, cost.activations}};
        case WorkKind::kBackward:
            return {
                .seconds = backward_s(cost), .takes = {0, cost.backward_takes}, .gives = {1, both}};
        case WorkKind::kBackwardInput:
            return {.seconds = cost.backward_input_s,
                    .takes = {0, cost.backward_takes},
                    .gives = {0, both - cost.kept_for_weight}};
        case WorkKind::kBackwardWeight:
            return {.seconds = cost.backward_weight_s, .gives = {1, cost.kept_for_weight}};
    }
    DSL_CHECK(false, "work {}", static_cast<int>(kind));
}

TimedPlan timed_schedule(const PipelineSchedule& schedule, const std::vector<PartCost>& costs) {
    DSL_CHECK(std::ssize(costs) == schedule.shape.parts(),
              "costs of {} parts were given, but {} are needed", costs.size(),
              schedule.shape.parts());
    return ScheduleTiming(schedule, costs).make();
}

TimedRun simulate_pipeline(const PipelineSchedule& schedule, const std::vector<PartCost>& costs) {
    TimedRun run = run_timed_plan(timed_schedule(schedule, costs));
    run.spans.resize(schedule.stages.size());
    run.lanes.resize(schedule.stages.size());
    return run;
}

}  // namespace dslaunch::plan
