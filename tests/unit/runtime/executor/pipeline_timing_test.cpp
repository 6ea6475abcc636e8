// The bubble of schedules as the executor runs them: stages as threads whose segments only sleep,
// beside the formulas (docs/decisions/008) that the simulator is held to as well.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <map>
#include <thread>
#include <tuple>

#include "plan/stage_model.h"
#include "runtime/executor/executor.h"
#include "support/catch.h"

namespace dslaunch {
namespace {

using Seconds = std::chrono::duration<double>;

constexpr int kStages = 4;
constexpr int kMicroBatches = 8;
// Of a forward, of a backward's first half, of its second half.
constexpr Seconds kWork{0.02};

// Where sends meet their receives.
class Meeting {
  public:
    // Place of a message: the stage above, its micro step, whether it carries gradients.
    using Place = std::tuple<int, int, bool>;
    void meet(const Place& place) {
        std::unique_lock lock(mutex_);
        const int count = ++came_[place];
        changed_.notify_all();
        const int both = (count + 1) / 2 * 2;
        changed_.wait(lock, [&] { return came_[place] >= both; });
    }

  private:
    std::mutex mutex_;
    std::condition_variable changed_;
    std::map<Place, int> came_;
};

class SleepingStage final : public InstructionRunner {
  public:
    SleepingStage(int stage, Meeting& meeting) : stage_(stage), meeting_(meeting) {}

    void run(const Instruction& instruction) override {
        switch (instruction.op) {
            case Op::kForward:
            case Op::kBackwardInput:
            case Op::kBackwardWeight:
                return std::this_thread::sleep_for(kWork);
            case Op::kBackward:
                return std::this_thread::sleep_for(2 * kWork);
            case Op::kSend:
            case Op::kReceive: {
                const bool to_next = instruction.gradients == (instruction.op == Op::kReceive);
                return meeting_.meet(
                    {to_next ? stage_ : stage_ - 1, instruction.micro_step, instruction.gradients});
            }
            default:
                return;
        }
    }
    void poison(const std::string& /*why*/) override {}

  private:
    int stage_;
    Meeting& meeting_;
};

ModelInfo one_segment_a_stage() {
    ModelInfo model;
    for (int s = 0; s < kStages; ++s) {
        SegmentInfo segment;
        segment.name = std::to_string(s);
        segment.parameters = {s};
        model.parameters.push_back({segment.name, 100, 4, true});
        model.segments.push_back(segment);
    }
    return model;
}

// The share of a step in which a stage does not compute.
double bubble_of(ScheduleKind kind) {
    const ModelInfo model = one_segment_a_stage();
    const PipelineSchedule schedule = make_schedule(kind, {kStages, 1, kMicroBatches});
    Meeting meeting;
    std::vector<StepPlan> plans;
    for (int stage = 0; stage < kStages; ++stage) {
        const SegmentRange span{stage, stage + 1};
        const ModelInfo part = stage_model(model, span);
        StepPlanOptions options;
        options.accumulation_steps = kMicroBatches;
        options.stage_work = stage_work(model, span, schedule.stages[static_cast<size_t>(stage)]);
        plans.push_back(make_step_plan(part, make_flat_layout(part, {1 << 20, 1}), options));
    }
    const auto begin = std::chrono::steady_clock::now();
    {
        std::vector<std::jthread> stages;
        for (int stage = 0; stage < kStages; ++stage)
            stages.emplace_back([&, stage] {
                SleepingStage runner(stage, meeting);
                Executor executor(plans[static_cast<size_t>(stage)], runner, [](Lane) {});
                executor.run_step();
            });
    }
    const Seconds step = std::chrono::steady_clock::now() - begin;
    return 1 - 3 * kMicroBatches * kWork / step;
}

constexpr double kTolerance = 0.03;

// Other work beside only makes it longer.
double least_bubble(ScheduleKind kind, double formula) {
    double least = 1;
    for (int turn = 0; turn < 5 && least > formula + kTolerance; ++turn)
        least = std::min(least, bubble_of(kind));
    return least;
}

}  // namespace

TEST_CASE("stages that sleep have the bubble of their schedule") {
    // (p - 1) / (m + p - 1), and for ZB-H1, whose weight halves fill two thirds of it,
    // (p - 1) / (3 m + p - 1): Qi et al. 2023, arXiv 2401.10241, table 1 at equal times.
    const double p = kStages;
    const double m = kMicroBatches;
    const double whole = (p - 1) / (m + p - 1);
    const double zero_bubble = (p - 1) / (3 * m + p - 1);
    const double gpipe = least_bubble(ScheduleKind::kGPipe, whole);
    const double one_by_one = least_bubble(ScheduleKind::k1F1B, whole);
    const double split = least_bubble(ScheduleKind::kZeroBubbleH1, zero_bubble);
    std::printf(
        "bubble with 4 stages, 8 micro batches: GPipe %.4f, 1F1B %.4f (formula %.4f), "
        "ZB-H1 %.4f (formula %.4f)\n",
        gpipe, one_by_one, whole, split, zero_bubble);
    for (const auto& [measured, formula] :
         {std::pair(gpipe, whole), {one_by_one, whole}, {split, zero_bubble}}) {
        CHECK(measured >= formula);
        CHECK(measured <= formula + kTolerance);
    }
}

}  // namespace dslaunch
