#include "plan/predict/step_forecast.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <tuple>

#include "base/check.h"

namespace dslaunch::plan {
namespace {

double at_rate(int64_t amount, double rate) {
    return rate > 0 ? static_cast<double>(amount) / rate : 0;
}

// Whether gradients of later micro steps are added to those of the first, where they lie: nothing
// of the first one is given away.
bool adds_in_place(const StepPlan& plan) {
    return std::ranges::none_of(plan.instructions, [](const Instruction& instruction) {
        return instruction.op == Op::kPost && instruction.micro_step == 0;
    });
}

class InstructionTimes {
  public:
    InstructionTimes(const StepPlan& plan, const ModelInfo& model,
                     std::span<const SegmentTimes> times, const MachineRates& rates)
        : plan_(plan),
          model_(model),
          times_(times),
          rates_(rates),
          trained_(model.trained()),
          adds_(adds_in_place(plan)) {}

    [[nodiscard]] double of(const Instruction& instruction) const {
        switch (instruction.op) {
            case Op::kForward:
            case Op::kRecompute:
                return segment(instruction).forward_s;
            case Op::kBackward:
                return segment(instruction).backward_input_s +
                       segment(instruction).backward_weight_s + adding_s(instruction);
            case Op::kBackwardInput:
                return segment(instruction).backward_input_s;
            case Op::kBackwardWeight:
                return segment(instruction).backward_weight_s + adding_s(instruction);
            case Op::kUpdate:
                return at_rate(chunk_numel(instruction), rates_.update_numel_per_s);
            case Op::kAccumulate:
                return at_rate(3 * kFp32Bytes * chunk_numel(instruction), rates_.sum_bytes_per_s);
            case Op::kNorm:
                return at_rate(read_bytes(instruction), rates_.sum_bytes_per_s);
            case Op::kReduce:
            case Op::kGather:
                return at_rate(2 * instruction.bytes.value, rates_.sum_bytes_per_s) +
                       at_rate(instruction.sent.value, rates_.link_bytes_per_s);
            case Op::kRead:
                return at_rate(instruction.bytes.value, rates_.disk.read_bytes_per_s);
            case Op::kWrite:
                return at_rate(instruction.bytes.value, rates_.disk.write_bytes_per_s);
            case Op::kSend:
                return at_rate(instruction.bytes.value, rates_.link_bytes_per_s);
            case Op::kTie:
                return at_rate(2 * instruction.bytes.value, rates_.sum_bytes_per_s) +
                       at_rate(instruction.bytes.value, rates_.link_bytes_per_s);
            case Op::kLoad:
            case Op::kAwait:
            case Op::kRelease:
            case Op::kClaim:
            case Op::kPost:
            case Op::kReceive:
                return 0;
        }
        return 0;
    }

  private:
    static constexpr int64_t kFp32Bytes = 4;

    [[nodiscard]] const SegmentTimes& segment(const Instruction& instruction) const {
        return times_[instruction.segment];
    }
    [[nodiscard]] int64_t chunk_numel(const Instruction& instruction) const {
        return plan_.chunks.all[instruction.chunk].range.numel;
    }
    // To the gradients of the micro steps before.
    [[nodiscard]] double adding_s(const Instruction& instruction) const {
        if (!adds_ || instruction.micro_step == 0) return 0;
        int64_t numel = 0;
        for (const int p : model_.segments[instruction.segment].parameters)
            if (trained_[p]) numel += model_.parameters[p].numel;
        return at_rate(3 * kFp32Bytes * numel, rates_.sum_bytes_per_s);
    }
    [[nodiscard]] int64_t read_bytes(const Instruction& instruction) const {
        int64_t bytes = 0;
        for (const int buffer : instruction.reads) bytes += plan_.buffers[buffer].bytes.value;
        return bytes;
    }

    const StepPlan& plan_;
    const ModelInfo& model_;
    std::span<const SegmentTimes> times_;
    const MachineRates& rates_;
    std::vector<bool> trained_;
    bool adds_;
};

// What is sent to other hosts takes the link longer than the processor.
bool takes_processor(const Instruction& instruction) {
    return instruction.lane == Lane::kCompute ||
           (instruction.lane == Lane::kCommunication && instruction.sent.value == 0);
}

// Runs all lanes of all plans, from one end of an instruction to the next.
class LaneRun {
  public:
    explicit LaneRun(std::span<const TimedPlan> plans) : plans_(plans) {
        for (size_t p = 0; p < plans.size(); ++p) {
            const std::vector<Instruction>& instructions = plans[p].plan->instructions;
            DSL_CHECK(plans[p].seconds.size() == instructions.size(),
                      "times of {} instructions, not of {}", plans[p].seconds.size(),
                      instructions.size());
            done_.emplace_back(instructions.size(), false);
            spans_.emplace_back(instructions.size());
            queues_.emplace_back();
            running_.emplace_back();
            for (size_t i = 0; i < instructions.size(); ++i) {
                queues_[p][static_cast<size_t>(instructions[i].lane)].push_back(i);
                if (instructions[i].op == Op::kSend) sends_[key_of(instructions[i])] = i;
            }
        }
    }

    std::vector<std::vector<InstructionSpan>> run() {
        while (true) {
            while (start_ready()) {
            }
            double step_s = std::numeric_limits<double>::infinity();
            for (size_t p = 0; p < plans_.size(); ++p)
                for (const Running& lane : running_[p])
                    if (lane.busy) step_s = std::min(step_s, lane.left_s / speed(p, lane));
            if (std::isinf(step_s)) break;
            advance(step_s);
        }
        for (size_t p = 0; p < plans_.size(); ++p)
            for (size_t i = 0; i < done_[p].size(); ++i)
                DSL_CHECK(done_[p][i], "instruction {} of plan {} waits for ever", i, p);
        return std::move(spans_);
    }

  private:
    struct Running {
        bool busy = false;
        bool computes = false;
        size_t instruction = 0;
        double left_s = 0;  // alone on its processors
    };
    using TransferKey = std::tuple<int, bool, int>;  // behind which part, what, micro step

    static TransferKey key_of(const Instruction& instruction) {
        return {instruction.part, instruction.gradients, instruction.micro_step};
    }

    [[nodiscard]] bool can_start(size_t p, size_t i) const {
        const Instruction& instruction = plans_[p].plan->instructions[i];
        for (const int wait : instruction.waits)
            if (!done_[p][wait]) return false;
        if (instruction.op != Op::kReceive) return true;
        if (plans_.size() == 1) return true;  // a stage alone: what it waits for is there
        return done_[instruction.peer][sends_.at(key_of(instruction))];
    }

    // Ends at once what takes no time.
    bool start_ready() {
        bool started = false;
        for (size_t p = 0; p < plans_.size(); ++p)
            for (size_t l = 0; l < kLanes; ++l) {
                Running& lane = running_[p][l];
                std::vector<size_t>& queue = queues_[p][l];
                size_t& next = next_of(p, l);
                if (lane.busy || next == queue.size() || !can_start(p, queue[next])) continue;
                lane = {true, takes_processor(plans_[p].plan->instructions[queue[next]]),
                        queue[next], plans_[p].seconds[queue[next]]};
                ++next;
                spans_[p][lane.instruction].begin = now();
                if (lane.left_s <= 0) finish(p, lane);
                started = true;
            }
        return started;
    }

    [[nodiscard]] double speed(size_t p, const Running& lane) const {
        if (!lane.computes) return 1;
        const auto sharing = std::ranges::count_if(
            running_[p], [](const Running& other) { return other.busy && other.computes; });
        if (sharing == 1) return 1;
        const bool computing = &lane == &running_[p][static_cast<size_t>(Lane::kCompute)];
        return computing ? plans_[p].computing_beside : plans_[p].updating_beside;
    }

    void advance(double step_s) {
        now_s_ += step_s;
        std::vector<std::pair<size_t, Running*>> ended;
        for (size_t p = 0; p < plans_.size(); ++p) {
            std::array<double, kLanes> speeds{};
            for (size_t l = 0; l < kLanes; ++l) speeds[l] = speed(p, running_[p][l]);
            for (size_t l = 0; l < kLanes; ++l) {
                Running& lane = running_[p][l];
                if (!lane.busy) continue;
                lane.left_s -= step_s * speeds[l];
                if (lane.left_s <= kNothing * step_s) ended.emplace_back(p, &lane);
            }
        }
        for (const auto& [p, lane] : ended) finish(p, *lane);
    }

    void finish(size_t p, Running& lane) {
        lane.busy = false;
        done_[p][lane.instruction] = true;
        spans_[p][lane.instruction].end = now();
    }

    [[nodiscard]] Duration now() const {
        return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(now_s_));
    }
    size_t& next_of(size_t p, size_t lane) { return next_[{p, lane}]; }

    static constexpr double kNothing = 1e-9;  // of a time: what subtraction leaves of it

    std::span<const TimedPlan> plans_;
    std::vector<std::array<std::vector<size_t>, kLanes>> queues_;
    std::map<std::pair<size_t, size_t>, size_t> next_;
    std::vector<std::array<Running, kLanes>> running_;
    std::vector<std::vector<bool>> done_;
    std::vector<std::vector<InstructionSpan>> spans_;
    std::map<TransferKey, size_t> sends_;
    double now_s_ = 0;
};

}  // namespace

TimedPlan time_plan(const StepPlan& plan, const ModelInfo& model,
                    std::span<const SegmentTimes> times, const MachineRates& rates) {
    DSL_CHECK(times.size() == model.segments.size(), "times of {} segments, not of {}",
              times.size(), model.segments.size());
    const InstructionTimes of(plan, model, times, rates);
    TimedPlan timed;
    timed.plan = &plan;
    timed.computing_beside = rates.computing_beside;
    timed.updating_beside = rates.updating_beside;
    for (const Instruction& instruction : plan.instructions)
        timed.seconds.push_back(of.of(instruction));
    return timed;
}

std::vector<std::vector<InstructionSpan>> run_timed_plans(std::span<const TimedPlan> plans) {
    return LaneRun(plans).run();
}

double end_of(std::span<const std::vector<InstructionSpan>> spans) {
    Duration end{0};
    for (const std::vector<InstructionSpan>& plan : spans)
        for (const InstructionSpan& span : plan) end = std::max(end, span.end);
    return std::chrono::duration<double>(end).count();
}

}  // namespace dslaunch::plan
