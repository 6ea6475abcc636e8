#include "runtime/train/step_runner.h"

#include <fmt/core.h>

#include <utility>

#include "runtime/memory/lending_allocator.h"

namespace dslaunch::runtime {

namespace {

// Describes INSTRUCTION. NUMBER is the number of its segment in the model.
std::string describe_instruction(const plan::ModelInfo& info, int number,
                                 const plan::Instruction& instruction) {
    std::string text(plan::op_name(instruction.op));
    if (instruction.segment >= 0)
        text += fmt::format(" of segment {} ({})", number, info.segments[instruction.segment].name);
    if (instruction.bucket >= 0) text += fmt::format(" of bucket {}", instruction.bucket);
    if (instruction.micro_step >= 0)
        text += fmt::format(" in micro step {}", instruction.micro_step);
    return text;
}

LaneStreams lane_streams(const StepRunnerParts& parts) {
    LaneStreams streams;
    if (parts.device == nullptr) return streams;
    const auto set = [&](plan::Lane lane, device::Queue& queue) {
        streams.of_lane[static_cast<size_t>(lane)] = queue.stream();
    };
    set(plan::Lane::kCompute, parts.device->compute());
    set(plan::Lane::kCommunication, parts.device->communication());
    streams.limit = parts.time_limit;
    return streams;
}

}  // namespace

StepRunner::StepRunner(StepRunnerParts parts)
    : parts_(std::move(parts)), executor_(*parts_.plan, *this, lane_streams(parts_)) {}

void StepRunner::run(const plan::Instruction& instruction) {
    carry_out(instruction);
    if (parts_.memory != nullptr) parts_.memory->note(instruction.op);
}

void StepRunner::carry_out(const plan::Instruction& instruction) {
    const TrafficScope scope(plan::traffic_kind(instruction.op));
    switch (instruction.op) {
        case plan::Op::kLoad:
        case plan::Op::kForward:
        case plan::Op::kRecompute:
        case plan::Op::kBackwardInput:
            return parts_.segments->run(instruction);
        case plan::Op::kBackward:
        case plan::Op::kBackwardWeight: {
            parts_.state->begin_backward(instruction.micro_step);
            {
                const LendingScope lending(parts_.state->gradient_memory());
                parts_.segments->run(instruction);
            }
            return parts_.state->end_segment(instruction.segment);
        }
        case plan::Op::kSend:
        case plan::Op::kReceive:
            return run_transfer(instruction);
        case plan::Op::kTie:
            return run_tie(instruction);
        default:
            return parts_.state->run(instruction);
    }
}

void StepRunner::poison(const std::string& why) {
    parts_.collectives->poison(why);
    for (Collectives* const group : parts_.groups) group->poison(why);
    if (parts_.stage.link != nullptr) parts_.stage.link->abort(why);
}

void StepRunner::check_device() {
    if (parts_.device != nullptr) parts_.device->check();
}

int StepRunner::segment_of_model(int segment) const {
    return dslaunch::plan::segment_of_model(parts_.stage.parts, segment);
}

// Returns the message number of a transfer lane. The sending lane and the receiving lane have the
// same number.
uint32_t StepRunner::message_number(plan::Lane lane) {
    return (static_cast<uint32_t>(lane) - static_cast<uint32_t>(plan::Lane::kSend)) / 2;
}

void StepRunner::run_transfer(const plan::Instruction& instruction) {
    const StageLink& link = *parts_.stage.link;
    const uint32_t number = message_number(instruction.lane);
    const StageMessage message{instruction.part, instruction.gradients, instruction.micro_step};
    const auto send = [&](const std::vector<c10::IValue>& values) {
        link.send(instruction.peer, number, values, message);
    };
    if (instruction.op == plan::Op::kSend) {
        if (!instruction.gradients) return send(parts_.segments->take_values(instruction));
        std::vector<c10::IValue> gradients;
        for (at::Tensor& gradient : parts_.segments->take_gradients(instruction))
            gradients.emplace_back(std::move(gradient));
        return send(gradients);
    }
    const std::vector<c10::IValue> values = link.receive(instruction.peer, number, message);
    if (!instruction.gradients) return parts_.segments->put_values(instruction, values);
    std::vector<at::Tensor> gradients;
    for (const c10::IValue& value : values) gradients.push_back(value.toTensor());
    parts_.segments->put_gradients(instruction, gradients);
}

void StepRunner::run_tie(const plan::Instruction& instruction) {
    const auto bucket = static_cast<size_t>(instruction.bucket);
    // The message numbers of the transfer lanes are lower than this number. All tied buckets can
    // use this number: each stage has one bucket for a tied parameter, and all stages carry out
    // their kTie instructions in the same order.
    const uint32_t number = message_number(plan::Lane::kReceiveUpBack) + 1;
    parts_.stage.link->sum(parts_.state->tied_gradients(instruction.bucket),
                           parts_.stage.stages_of_bucket.at(bucket), number);
}

void StepRunner::change_plan(const plan::StepPlan& plan, int64_t steps) {
    parts_.state->change_plan(plan);
    const std::lock_guard lock(plan_mutex_);
    executor_.change_plan(plan);
    parts_.plan = &plan;
    const uint64_t done = executor_.instructions_done() + ends_reached_;
    instructions_before_ = steps * (std::ssize(plan.instructions) + 1) - static_cast<int64_t>(done);
}

TrafficTable StepRunner::traffic() const {
    TrafficTable all = parts_.collectives->traffic();
    for (const Collectives* const group : parts_.groups) all += group->traffic();
    if (parts_.stage.far != nullptr) all += parts_.stage.far->traffic();
    return all;
}

StepPosition StepRunner::position() const {
    StepPosition position;
    const std::lock_guard lock(plan_mutex_);
    position.instructions_done =
        executor_.instructions_done() + ends_reached_ + static_cast<uint64_t>(instructions_before_);
    position.instructions_per_step = parts_.plan->instructions.size() + 1;
    for (int l = 0; l < plan::kLanes; ++l) {
        const int current = executor_.current(static_cast<plan::Lane>(l));
        if (current < 0) continue;
        const plan::Instruction& instruction = parts_.plan->instructions[current];
        position.lanes += fmt::format(
            ", {}: {}", plan::lane_name(static_cast<plan::Lane>(l)),
            describe_instruction(*parts_.info, segment_of_model(instruction.segment), instruction));
    }
    return position;
}

}  // namespace dslaunch::runtime
