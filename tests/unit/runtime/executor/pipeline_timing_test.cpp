// The bubble of schedules as the executor runs them: stages as threads whose segments only sleep,
// beside the formulas (docs/decisions/008) that the simulator is held to as well.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <map>
#include <thread>
#include <tuple>

#include "plan/step/stage_model.h"
#include "runtime/executor/executor.h"
#include "support/catch.h"

namespace dslaunch {

using namespace plan;
using namespace runtime;
namespace {

using Seconds = std::chrono::duration<double>;

constexpr int kStages = 4;
constexpr int kMicroBatches = 8;
// Of a forward of all of a stage, of a backward's first half, of its second half.
constexpr Seconds kWork{0.04};

// Where sends meet their receives.
class Meeting {
  public:
    // Place of a message: the part that its values are behind, its micro step, whether it carries
    // gradients.
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
    // WORK: of a forward, of each half of a backward.
    SleepingStage(Seconds work, Meeting& meeting) : work_(work), meeting_(meeting) {}

    void run(const Instruction& instruction) override {
        switch (instruction.op) {
            case Op::kForward:
            case Op::kBackwardInput:
            case Op::kBackwardWeight:
                return std::this_thread::sleep_for(work_);
            case Op::kBackward:
                return std::this_thread::sleep_for(2 * work_);
            case Op::kSend:
            case Op::kReceive:
                return meeting_.meet(
                    {instruction.part, instruction.micro_step, instruction.gradients});
            default:
                return;
        }
    }
    void poison(const std::string& /*why*/) override {}

  private:
    Seconds work_;
    Meeting& meeting_;
};

ModelInfo one_segment_a_part(int parts) {
    ModelInfo model;
    for (int s = 0; s < parts; ++s) {
        SegmentInfo segment;
        segment.name = std::to_string(s);
        segment.parameters = {s};
        model.parameters.push_back({segment.name, 100, 4, true});
        model.segments.push_back(segment);
    }
    return model;
}

// The share of a step in which a stage does not compute.
double bubble_of(ScheduleKind kind, int chunks) {
    const PipelineSchedule schedule = make_schedule(kind, {kStages, chunks, kMicroBatches});
    const ModelInfo model = one_segment_a_part(schedule.shape.parts());
    std::vector<SegmentRange> parts;
    for (int part = 0; part < schedule.shape.parts(); ++part) parts.push_back({part, part + 1});
    const auto ranges = ranges_of_stages(kind, schedule.shape, parts);
    Meeting meeting;
    std::vector<StepPlan> plans;
    for (int stage = 0; stage < kStages; ++stage) {
        const ModelInfo own = stage_model(model, ranges[stage]);
        StepPlanOptions options;
        options.accumulation_steps = kMicroBatches;
        options.stage_work = stage_work(model, parts, schedule, stage);
        plans.push_back(make_step_plan(own, make_flat_layout(own, {1 << 20, 1}), options));
    }
    const auto begin = std::chrono::steady_clock::now();
    {
        std::vector<std::jthread> stages;
        for (int stage = 0; stage < kStages; ++stage)
            stages.emplace_back([&, stage] {
                SleepingStage runner(kWork / chunks, meeting);
                Executor executor(plans[stage], runner);
                executor.run_step();
            });
    }
    const Seconds step = std::chrono::steady_clock::now() - begin;
    return 1 - 3 * kMicroBatches * kWork / step;
}

constexpr double kTolerance = 0.03;

// Other work beside only makes it longer.
double least_bubble(ScheduleKind kind, int chunks, double formula) {
    double least = 1;
    for (int turn = 0; turn < 5 && least > formula + kTolerance; ++turn)
        least = std::min(least, bubble_of(kind, chunks));
    return least;
}

}  // namespace

TEST_CASE("stages that sleep have the bubble of their schedule") {
    // (p - 1) / (m + p - 1); with v chunks (p - 1) / (v m + p - 1): Narayanan et al. 2021, arXiv
    // 2104.04473, section 2.2; ZB-H1, whose weight halves fill two thirds of it, (p - 1) / (3 m + p
    // - 1), and ZB-V, half of that, (p - 1) / (6 m + p - 1): Qi et al. 2023, arXiv 2401.10241,
    // table 1 and section 6, at equal times.
    const double p = kStages;
    const double m = kMicroBatches;
    struct Row {
        ScheduleKind kind;
        int chunks;
        double formula;
    };
    for (const Row& row : {Row{ScheduleKind::kGPipe, 1, (p - 1) / (m + p - 1)},
                           {ScheduleKind::k1F1B, 1, (p - 1) / (m + p - 1)},
                           {ScheduleKind::kInterleaved, 2, (p - 1) / (2 * m + p - 1)},
                           {ScheduleKind::kInterleaved, 3, (p - 1) / (3 * m + p - 1)},
                           {ScheduleKind::kZeroBubbleH1, 1, (p - 1) / (3 * m + p - 1)},
                           {ScheduleKind::kZeroBubbleV, 2, (p - 1) / (6 * m + p - 1)}}) {
        const double measured = least_bubble(row.kind, row.chunks, row.formula);
        std::printf("bubble with %d stages, %d micro batches, %s of %d: %.4f (formula %.4f)\n",
                    kStages, kMicroBatches, std::string(schedule_name(row.kind)).c_str(),
                    row.chunks, measured, row.formula);
        CHECK(measured >= row.formula);
        CHECK(measured <= row.formula + kTolerance);
    }
}

}  // namespace dslaunch
