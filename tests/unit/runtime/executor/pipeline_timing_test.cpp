// The bubble of schedules as the executor runs them. Stages are threads on a clock that the test
// drives. The bubble is compared with the formulas (docs/decisions/008) that also test the
// simulator.
#include <algorithm>
#include <array>
#include <condition_variable>
#include <map>
#include <mutex>
#include <thread>
#include <tuple>

#include "plan/pipeline/stage_model.h"
#include "runtime/executor/executor.h"
#include "support/catch.h"

namespace dslaunch {

using namespace plan;
using namespace runtime;
namespace {

constexpr int kStages = 4;
constexpr int kMicroBatches = 8;
// The time of a stage's forward, of a backward's first half and of its second half.
constexpr double kWork = 1;

// A place where sends meet their receives: a message passes when both are there.
class Meeting {
  public:
    // The name of a message: the part whose values it carries, its micro step, and true for
    // gradients.
    using Place = std::tuple<int, int, bool>;

    // Returns the time when the message passes. This side comes at START.
    double meet(const Place& place, double start) {
        std::unique_lock lock(mutex_);
        Message& message = messages_[place];
        message.both = std::max(message.both, start);
        ++message.came;
        changed_.notify_all();
        changed_.wait(lock, [&] { return message.came == 2; });
        return message.both;
    }

  private:
    struct Message {
        int came = 0;
        double both = 0;
    };
    std::mutex mutex_;
    std::condition_variable changed_;
    std::map<Place, Message> messages_;
};

// A stage that computes nothing and keeps a clock of its own: an instruction begins when its lane
// is free and the instructions that it waits for have ended. So the step's time depends only on
// what the executor runs, and not on the machine's other work. Any lane's thread.
class TimedStage final : public InstructionRunner {
  public:
    // A forward takes WORK, and so does each half of a backward.
    TimedStage(double work, const StepPlan& plan, Meeting& meeting)
        : work_(work), plan_(plan), meeting_(meeting), ends_(plan.instructions.size(), kNotRun) {}

    void run(const Instruction& instruction) override {
        double end = start_of(instruction);
        switch (instruction.op) {
            case Op::kForward:
            case Op::kBackwardInput:
            case Op::kBackwardWeight:
                end += work_;
                break;
            case Op::kBackward:
                end += 2 * work_;
                break;
            case Op::kSend:
            case Op::kReceive:
                end = meeting_.meet(
                    {instruction.part, instruction.micro_step, instruction.gradients}, end);
                break;
            default:
                break;
        }
        const std::lock_guard lock(mutex_);
        ends_[&instruction - plan_.instructions.data()] = end;
        lanes_[static_cast<size_t>(instruction.lane)] = end;
    }
    void poison(const std::string& /*why*/) override {}

    // Returns the number of instructions that ran before one that they wait for.
    [[nodiscard]] int early() const { return early_; }
    [[nodiscard]] double end() const { return *std::max_element(ends_.begin(), ends_.end()); }

  private:
    static constexpr double kNotRun = -1;

    double start_of(const Instruction& instruction) {
        const std::lock_guard lock(mutex_);
        double start = lanes_[static_cast<size_t>(instruction.lane)];
        for (const int other : instruction.waits) {
            if (ends_[other] == kNotRun) ++early_;
            start = std::max(start, ends_[other]);
        }
        return start;
    }

    double work_;
    const StepPlan& plan_;
    Meeting& meeting_;
    std::mutex mutex_;
    std::vector<double> ends_;  // end of each instruction
    std::array<double, kLanes> lanes_{};
    int early_ = 0;
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

// Returns the share of a step in which a stage does not compute.
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
    double step = 0;
    std::mutex mutex;
    {
        std::vector<std::jthread> stages;
        for (int stage = 0; stage < kStages; ++stage)
            stages.emplace_back([&, stage] {
                TimedStage runner(kWork / chunks, plans[stage], meeting);
                Executor executor(plans[stage], runner);
                executor.run_step();
                const std::lock_guard lock(mutex);
                CHECK(runner.early() == 0);
                step = std::max(step, runner.end());
            });
    }
    return 1 - 3 * kMicroBatches * kWork / step;
}

}  // namespace

TEST_CASE("stages that the executor runs have the bubble of their schedule") {
    // The bubbles at equal times:
    // - GPipe and 1F1B: (p - 1) / (m + p - 1); with v chunks: (p - 1) / (v m + p - 1). Narayanan et
    //   al. 2021, arXiv 2104.04473, section 2.2.
    // - ZB-H1, whose weight halves fill two thirds of the bubble: (p - 1) / (3 m + p - 1). ZB-V has
    //   half of that: (p - 1) / (6 m + p - 1). Qi et al. 2023, arXiv 2401.10241, table 1 and
    //   section 6.
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
        INFO(schedule_name(row.kind) << " of " << row.chunks);
        CHECK(bubble_of(row.kind, row.chunks) == Approx(row.formula).epsilon(1e-9));
    }
}

}  // namespace dslaunch
