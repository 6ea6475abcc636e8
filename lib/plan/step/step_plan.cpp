#include "plan/step/step_plan.h"

#include <algorithm>
#include <array>
#include <utility>

namespace dslaunch::plan {

std::string_view op_name(Op op) {
    constexpr std::array<std::string_view, 23> kNames = {
        "Load",           "Await",    "Gather",   "Forward", "Recompute",  "Release",
        "Claim",          "Backward", "Post",     "Reduce",  "Accumulate", "Norm",
        "Update",         "Read",     "Write",    "Send",    "Receive",    "BackwardInput",
        "BackwardWeight", "Tie",      "Exchange", "Select",  "UpdateRest"};
    return kNames[static_cast<size_t>(op)];
}

TrafficKind traffic_kind(Op op) {
    switch (op) {
        case Op::kReduce:
        case Op::kExchange:
        case Op::kTie:
            return TrafficKind::kReduce;
        case Op::kGather:
            return TrafficKind::kGather;
        case Op::kNorm:
            return TrafficKind::kNorm;
        case Op::kSend:
        case Op::kReceive:
            return TrafficKind::kStage;
        case Op::kForward:
        case Op::kRecompute:
        case Op::kBackward:
        case Op::kBackwardInput:
        case Op::kBackwardWeight:
        case Op::kPost:  // sums gradients of parameters that each tensor rank holds whole
            return TrafficKind::kTensor;
        default:
            return TrafficKind::kControl;
    }
}

std::string_view lane_name(Lane lane) {
    constexpr std::array<std::string_view, kLanes> kNames = {
        "compute",      "communication",   "read",         "write",   "send",
        "receive",      "send back",       "receive back", "send up", "receive up",
        "send up back", "receive up back", "update"};
    return kNames[static_cast<size_t>(lane)];
}

std::string_view tier_name(Tier tier) {
    constexpr std::array<std::string_view, kTiers> kNames = {"memory", "shared", "disk", "device"};
    return kNames[static_cast<size_t>(tier)];
}

std::string_view buffer_kind_name(BufferKind kind) {
    constexpr std::array<std::string_view, kBufferKinds> kNames = {
        "parameters", "gradients", "master", "moments", "activations", "live_values",
        "buffers",    "staging",   "batch",  "scalars", "swap_buffers"};
    return kNames[static_cast<size_t>(kind)];
}

void derive_waits(StepPlan& plan) {
    struct Last {
        int writer = -1;
        std::vector<int> readers;  // instructions that have read it since the last write
    };
    std::vector<Last> last(plan.buffers.size());
    for (size_t i = 0; i < plan.instructions.size(); ++i) {
        Instruction& instruction = plan.instructions[i];
        std::array<int, kLanes> newest;
        newest.fill(-1);
        const auto wait_for = [&](int other) {
            if (other < 0) return;
            int& latest = newest[static_cast<size_t>(plan.instructions[other].lane)];
            latest = std::max(latest, other);
        };
        for (const int b : instruction.reads) {
            wait_for(last[b].writer);
            last[b].readers.push_back(static_cast<int>(i));
        }
        for (const std::vector<int>* changed :
             {&instruction.writes, &instruction.creates, &instruction.frees}) {
            for (const int b : *changed) {
                Last& history = last[b];
                wait_for(history.writer);
                for (const int reader : history.readers)
                    if (reader != static_cast<int>(i)) wait_for(reader);
                history.writer = static_cast<int>(i);
                history.readers.clear();
            }
        }
        instruction.waits.clear();
        for (int lane = 0; lane < kLanes; ++lane)
            if (lane != static_cast<int>(instruction.lane) && newest[lane] >= 0)
                instruction.waits.push_back(newest[lane]);
    }
}

int StepPlan::add(PlanBuffer buffer) {
    buffers.push_back(std::move(buffer));
    return static_cast<int>(buffers.size()) - 1;
}

Instruction& StepPlan::add(Op op, Lane lane, int bucket, int micro_step) {
    Instruction& made = instructions.emplace_back();
    made.op = op;
    made.lane = lane;
    made.bucket = bucket;
    made.micro_step = micro_step;
    return made;
}

uint64_t StepPlan::hash() const {
    uint64_t hash = 0xCBF29CE484222325ULL;
    const auto add = [&hash](int64_t value) {
        for (int byte = 0; byte < 8; ++byte) {
            hash ^= static_cast<uint64_t>(value >> (8 * byte)) & 0xFF;
            hash *= 0x100000001B3ULL;
        }
    };
    add(static_cast<int64_t>(exchange));
    if (lag.on)
        for (const int64_t word :
             {static_cast<int64_t>(lag.kind), int64_t{lag.selects}, int64_t{lag.fills}})
            add(word);
    for (const Instruction& instruction : instructions) {
        add(static_cast<int64_t>(instruction.op));
        add(static_cast<int64_t>(instruction.lane));
        add(instruction.segment);
        add(instruction.bucket);
        add(instruction.micro_step);
        add(instruction.buffer);
        add(instruction.chunk);
        add(instruction.sum_buffer);
        add(instruction.gradients ? 1 : 0);
        add(instruction.part);
        add(instruction.peer);
        // The bytes of these instructions differ between hosts or ranks, so they are left out of
        // the hash. The ranks of a host compare the layouts of their arena instead.
        const bool own = instruction.op == Op::kUpdate || instruction.op == Op::kUpdateRest ||
                         instruction.op == Op::kGather || instruction.op == Op::kRead ||
                         instruction.op == Op::kWrite;
        if (!own) add(instruction.bytes.value);
    }
    return hash;
}

Bytes StepPlan::sent() const {
    Bytes sent;
    for (const Instruction& instruction : instructions) sent += instruction.sent;
    return sent;
}

std::array<Bytes, kTrafficKinds> StepPlan::sent_by_kind() const {
    std::array<Bytes, kTrafficKinds> sent{};
    for (const Instruction& instruction : instructions)
        sent[static_cast<size_t>(traffic_kind(instruction.op))] += instruction.sent;
    return sent;
}

}  // namespace dslaunch::plan
