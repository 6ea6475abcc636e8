// An independent check of pipeline schedules.
#pragma once

#include <fmt/core.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "plan/pipeline/pipeline_schedule.h"
#include "plan/pipeline/timed_schedule.h"
#include "unit/plan/pipeline/pipeline_shapes.h"

namespace dslaunch::plan {

inline std::string work_text(const PipelineWork& work) {
    return fmt::format("{} of chunk {}, micro batch {}", work_name(work.kind), work.chunk,
                       work.micro_batch);
}

// Checks one stage by itself. Each task must run once, after the tasks of this stage that make its
// inputs. The stage must never hold more activations than allowed.
class StageCheck {
  public:
    StageCheck(const PipelineSchedule& schedule, int stage, std::vector<std::string>& problems)
        : schedule_(schedule),
          stage_(stage),
          problems_(problems),
          states_(static_cast<size_t>(schedule.shape.chunks) *
                      static_cast<size_t>(schedule.shape.micro_batches),
                  State::kNothing),
          backwards_(static_cast<size_t>(schedule.shape.chunks), 0) {}

    void run() {
        for (const PipelineWork& work : schedule_.stages[stage_]) {
            if (work.chunk < 0 || work.chunk >= schedule_.shape.chunks || work.micro_batch < 0 ||
                work.micro_batch >= schedule_.shape.micro_batches) {
                report("contains the {}, which does not exist in this pipeline", work_text(work));
                in_range_ = false;
                return;
            }
            step(work);
        }
        for (const State state : states_)
            if (state != State::kDone) ++unfinished_;
        if (unfinished_ > 0)
            report("leaves {} pairs of chunk and micro batch unfinished", unfinished_);
        const int bound = live_bound(schedule_.kind, schedule_.shape, stage_);
        if (live_max_ > bound)
            report("keeps the activations of {} forwards at once, but at most {} are allowed",
                   live_max_, bound);
    }
    [[nodiscard]] bool in_range() const { return in_range_; }

  private:
    enum class State : uint8_t { kNothing, kForwardDone, kInputDone, kDone };

    void step(const PipelineWork& work) {
        State& state = states_[static_cast<size_t>(work.chunk) *
                                   static_cast<size_t>(schedule_.shape.micro_batches) +
                               static_cast<size_t>(work.micro_batch)];
        const bool weight = work.kind == WorkKind::kBackwardWeight;
        const State needed = work.kind == WorkKind::kForward ? State::kNothing
                             : weight                        ? State::kInputDone
                                                             : State::kForwardDone;
        if (state != needed) {
            report("cannot run the {} at its position in the schedule", work_text(work));
            return;
        }
        if (work.kind == WorkKind::kForward) live_max_ = std::max(live_max_, ++live_);
        if (weight || work.kind == WorkKind::kBackward) {
            --live_;
            int& next = backwards_[work.chunk];
            if (work.micro_batch != next++)
                report("adds the gradients of the {} out of order", work_text(work));
            const auto later = static_cast<size_t>(work.chunk) + 1;
            if (later < backwards_.size() && backwards_[later] <= work.micro_batch)
                report("adds the gradients of the {} before those of the next chunk",
                       work_text(work));
        }
        state = work.kind == WorkKind::kForward         ? State::kForwardDone
                : work.kind == WorkKind::kBackwardInput ? State::kInputDone
                                                        : State::kDone;
    }

    template <typename... Args>
    void report(fmt::format_string<Args...> format, Args&&... args) {
        problems_.push_back(
            fmt::format("stage {} {}", stage_, fmt::format(format, std::forward<Args>(args)...)));
    }

    const PipelineSchedule& schedule_;
    int stage_;
    std::vector<std::string>& problems_;
    std::vector<State> states_;   // by chunk, then micro batch
    std::vector<int> backwards_;  // by chunk
    int live_ = 0;
    int live_max_ = 0;
    int unfinished_ = 0;
    bool in_range_ = true;
};

// Returns the faults of a schedule, one sentence for each: works that are missing, repeated or do
// not belong to the stage, backwards out of order, more activations than live_bound, stages that
// wait for ever (receives block, sends do not). Returns an empty list if the schedule can be run.
inline std::vector<std::string> check_schedule(const PipelineSchedule& schedule) {
    const std::string why_not = why_no_schedule(schedule.kind, schedule.shape);
    if (!why_not.empty()) return {why_not};
    if (std::ssize(schedule.stages) != schedule.shape.stages)
        return {fmt::format("the schedule has {} stages instead of {}", schedule.stages.size(),
                            schedule.shape.stages)};
    std::vector<std::string> problems;
    for (int stage = 0; stage < schedule.shape.stages; ++stage) {
        StageCheck check(schedule, stage, problems);
        check.run();
        if (!check.in_range()) return problems;
    }
    // The costs of tasks do not matter here: a stage that waits for ever does so with any costs.
    const std::vector<PartCost> costs(static_cast<size_t>(schedule.shape.parts()));
    const TimedRun run = try_timed_plan(timed_schedule(schedule, costs));
    for (size_t stage = 0; stage < schedule.stages.size(); ++stage) {
        const std::vector<PipelineWork>& works = schedule.stages[stage];
        const size_t done = run.spans[stage].size();
        if (done < works.size())
            problems.push_back(
                fmt::format("stage {} waits forever before the {}", stage, work_text(works[done])));
    }
    return problems;
}

}  // namespace dslaunch::plan
