#include "plan/predict/step_forecast.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "base/check.h"
#include "plan/time/timed_plan.h"

namespace dslaunch::plan {
namespace {

// Returns true if gradients are reduced only after later micro steps, so that the first micro step
// has no Post. Its gradients then stay in place, and later micro steps add to them.
bool adds_in_place(const StepPlan& plan) {
    return std::ranges::none_of(plan.instructions, [](const Instruction& instruction) {
        return instruction.op == Op::kPost && instruction.micro_step == 0;
    });
}

class InstructionTimes {
  public:
    InstructionTimes(const RankStep& step, const MachineRates& rates)
        : plan_(*step.plan),
          model_(*step.model),
          times_(step.times),
          rates_(rates),
          trained_(model_.trained()),
          adds_(adds_in_place(plan_)) {}

    [[nodiscard]] double of(const Instruction& instruction) const {
        switch (instruction.op) {
            case Op::kForward:
            case Op::kRecompute:
                return segment(instruction).forward_s;
            case Op::kBackward:
                return backward_s(segment(instruction)) + adding_s(instruction);
            case Op::kBackwardInput:
                return segment(instruction).backward_input_s;
            case Op::kBackwardWeight:
                return segment(instruction).backward_weight_s + adding_s(instruction);
            case Op::kUpdate:
                return update_s(instruction);
            case Op::kUpdateRest:
                return rates_.update_s(static_cast<double>(chunk_numel(instruction)));
            case Op::kAccumulate:
                return rates_.add_s(chunk_numel(instruction));
            case Op::kNorm:
            case Op::kSelect:
                return seconds_at(read_bytes(instruction), rates_.sum_bytes_per_s);
            case Op::kExchange:
                return exchange_s(instruction);
            case Op::kReduce:
            case Op::kGather:
                return rates_.copy_s(instruction.bytes) + rates_.link_s(instruction.sent);
            case Op::kRead:
                return seconds_at(instruction.bytes, rates_.disk.read_bytes_per_s);
            case Op::kWrite:
                return seconds_at(instruction.bytes, rates_.disk.write_bytes_per_s);
            case Op::kSend:
                return rates_.link_s(instruction.bytes);
            case Op::kTie:
                return rates_.copy_s(instruction.bytes) + rates_.link_s(instruction.bytes);
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
    // Returns the time of an update. If updates lag (plan/step/lagging.h), an update changes only
    // the important units; the gradients of the other units are added to the waiting gradients.
    [[nodiscard]] double update_s(const Instruction& update) const {
        const int64_t numel = chunk_numel(update);
        if (plan_.lag.kind == Lag::kWhole) return rates_.update_s(static_cast<double>(numel));
        const double important = static_cast<double>(numel) * plan_.lag.important;
        return rates_.update_s(important) + rates_.add_s(numel - static_cast<int64_t>(important));
    }
    // Returns the time of an exchange: the time on the link, and the time of four passes over the
    // bucket's values. The passes write, compress and expand the values.
    [[nodiscard]] double exchange_s(const Instruction& exchange) const {
        int64_t numel = 0;
        for (const StateChunk& chunk : plan_.chunks.all)
            if (chunk.bucket == exchange.bucket) numel += chunk.range.numel;
        return rates_.copy_s(Bytes{4 * numel * int64_t{sizeof(float)}}) +
               rates_.link_s(exchange.sent);
    }
    [[nodiscard]] const SegmentTimes& segment(const Instruction& instruction) const {
        return times_[instruction.segment];
    }
    [[nodiscard]] int64_t chunk_numel(const Instruction& instruction) const {
        return plan_.chunks.all[instruction.chunk].range.numel;
    }
    // Returns the time to add a segment's gradients to the gradients of the earlier micro steps.
    [[nodiscard]] double adding_s(const Instruction& instruction) const {
        if (!adds_ || instruction.micro_step == 0) return 0;
        int64_t numel = 0;
        for (const int p : model_.segments[instruction.segment].parameters)
            if (trained_[p]) numel += model_.parameters[p].numel;
        return rates_.add_s(numel);
    }
    [[nodiscard]] Bytes read_bytes(const Instruction& instruction) const {
        Bytes bytes;
        for (const int buffer : instruction.reads) bytes += plan_.buffers[buffer].bytes;
        return bytes;
    }

    const StepPlan& plan_;
    const ModelInfo& model_;
    std::span<const SegmentTimes> times_;
    const MachineRates& rates_;
    std::vector<bool> trained_;
    bool adds_;
};

// Returns true if an instruction mainly uses the processor. Sums with other hosts mainly use the
// link.
bool takes_processor(const Instruction& instruction) {
    return instruction.lane == Lane::kCompute ||
           (instruction.lane == Lane::kCommunication && instruction.sent.value == 0);
}

// The step plans of all ranks as one timed plan. The lanes of the first rank come first, then the
// lanes of the second rank, and so on.
class StepTiming {
  public:
    StepTiming(std::span<const RankStep> steps, const MachineRates& rates) : steps_(steps) {
        plan_.lanes.resize(kLanes * steps.size());
        for (size_t rank = 0; rank < steps.size(); ++rank) note_places(rank);
        for (size_t rank = 0; rank < steps.size(); ++rank) add_tasks(rank, rates);
    }

    [[nodiscard]] std::vector<std::vector<InstructionSpan>> run() const {
        const TimedRun run = run_timed_plan(plan_);
        std::vector<std::vector<InstructionSpan>> spans;
        for (const std::vector<TaskRef>& places : places_)
            for (spans.emplace_back(); const TaskRef& place : places) {
                const TimedSpan& span = run.spans[place.lane][place.index];
                spans.back().push_back({duration(span.begin_s), duration(span.end_s)});
            }
        return spans;
    }

  private:
    using TransferKey = std::tuple<int, bool, int>;  // part before the transfer, true for
                                                     // gradients, micro step

    static TransferKey key_of(const Instruction& instruction) {
        return {instruction.part, instruction.gradients, instruction.micro_step};
    }
    static Duration duration(double seconds) {
        return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds));
    }

    void note_places(size_t rank) {
        std::array<int, kLanes> counts{};
        places_.emplace_back();
        for (const Instruction& instruction : steps_[rank].plan->instructions) {
            const auto lane = static_cast<int>(instruction.lane);
            places_.back().push_back({static_cast<int>(rank) * kLanes + lane, counts[lane]++});
            if (instruction.op == Op::kSend) sends_[key_of(instruction)] = places_.back().back();
        }
    }

    void add_tasks(size_t rank, const MachineRates& rates) {
        for (const Lane lane : {Lane::kCompute, Lane::kCommunication}) {
            TimedLane& shared = plan_.lanes[rank * kLanes + static_cast<size_t>(lane)];
            shared.processors = static_cast<int>(rank);
            shared.speed_beside =
                lane == Lane::kCompute ? rates.computing_beside : rates.updating_beside;
        }
        const std::vector<double> seconds = instruction_seconds(steps_[rank], rates);
        for (size_t i = 0; i < seconds.size(); ++i) {
            const Instruction& instruction = steps_[rank].plan->instructions[i];
            std::vector<TaskRef> waits;
            for (const int wait : instruction.waits) waits.push_back(places_[rank][wait]);
            // If only one stage is forecast, its messages are assumed to have arrived already.
            if (instruction.op == Op::kReceive && steps_.size() > 1)
                waits.push_back(sends_.at(key_of(instruction)));
            plan_.lanes[places_[rank][i].lane].add(
                {.seconds = seconds[i], .shares = takes_processor(instruction)}, waits);
        }
    }

    std::span<const RankStep> steps_;
    std::vector<std::vector<TaskRef>> places_;  // by rank, then instruction
    std::map<TransferKey, TaskRef> sends_;
    TimedPlan plan_;
};

}  // namespace

std::vector<double> instruction_seconds(const RankStep& step, const MachineRates& rates) {
    DSL_CHECK(step.times.size() == step.model->segments.size(),
              "times of {} segments were given, but the model has {}", step.times.size(),
              step.model->segments.size());
    const InstructionTimes times(step, rates);
    std::vector<double> seconds;
    for (const Instruction& instruction : step.plan->instructions)
        seconds.push_back(times.of(instruction));
    return seconds;
}

std::vector<std::vector<InstructionSpan>> forecast_steps(std::span<const RankStep> steps,
                                                         const MachineRates& rates) {
    return StepTiming(steps, rates).run();
}

double end_of(std::span<const std::vector<InstructionSpan>> spans) {
    Duration end{0};
    for (const std::vector<InstructionSpan>& plan : spans)
        for (const InstructionSpan& span : plan) end = std::max(end, span.end);
    return std::chrono::duration<double>(end).count();
}

}  // namespace dslaunch::plan
