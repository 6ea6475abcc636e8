#include "plan/step/stage_transfers.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace dslaunch::plan {

namespace {

Lane lane_of(bool sends, bool gradients, bool up) {
    if (gradients)
        return sends ? (up ? Lane::kSendUpBack : Lane::kSendBack)
                     : (up ? Lane::kReceiveUpBack : Lane::kReceiveBack);
    return sends ? (up ? Lane::kSendUp : Lane::kSend) : (up ? Lane::kReceiveUp : Lane::kReceive);
}

}  // namespace

void StageTransfers::add_places() {
    if (!options_.stage_work.in_pipeline()) return;
    const auto is_up = [](const StagePart& part) { return part.before.up || part.behind.up; };
    const bool turns_round = std::ranges::any_of(options_.stage_work.parts, is_up);
    for (const bool up : {false, true}) {
        if (up && !turns_round) continue;
        for (const bool gradients : {false, true}) {
            const Lane lane = lane_of(/*sends=*/false, gradients, up);
            for (int k = 0; k < 2; ++k)
                places_[static_cast<size_t>(lane)][k] =
                    plan_.add({fmt::format("slot {} for what arrives on {}", k, lane_name(lane)),
                               BufferKind::kScalars, Tier::kMemory, Bytes{8}, true});
        }
    }
    for (int k = 0; k < 2; ++k)
        turns_[k] = plan_.add({fmt::format("turn of works, {}", k), BufferKind::kScalars,
                               Tier::kMemory, Bytes{8}, true});
}

void StageTransfers::end_work() {
    for (size_t i = plan_.instructions.size(); i-- > 0;) {
        if (plan_.instructions[i].lane != Lane::kCompute) continue;
        plan_.instructions[i].reads.push_back(turn_);
        return;
    }
}

Instruction& StageTransfers::add(const Transfer& transfer) {
    DSL_CHECK(transfer.other.stage >= 0, "part {} has no neighbour to send to or receive from",
              transfer.part);
    const bool sends = transfer.op == Op::kSend;
    Instruction& made =
        plan_.add(transfer.op, lane_of(sends, transfer.gradients, transfer.other.up));
    made.gradients = transfer.gradients;
    made.part = transfer.part;
    made.peer = transfer.other.stage;
    made.segment = transfer.segment;
    made.micro_step = transfer.micro_step;
    made.bytes = plan_.buffers[transfer.buffer].bytes;
    (sends ? made.frees : made.creates) = {transfer.buffer};
    return made;
}

StageTransfers::Received StageTransfers::receive(const Transfer& transfer) {
    Instruction& made = add(transfer);
    const auto lane = static_cast<size_t>(made.lane);
    const int place = places_[lane][messages_[lane]++ % 2];
    made.writes = {place, turn_};
    return {transfer.buffer, place};
}

StageTransfers::Received StageTransfers::receive_values(const StagePart& part, int m) {
    const int buffer =
        plan_.add({fmt::format("live values before part {}, micro step {}", part.part, m),
                   BufferKind::kLiveValues, Tier::kMemory, part.received, false});
    return receive(
        {Op::kReceive, false, part.before, part.part - 1, part.segments.begin, m, buffer});
}

StageTransfers::Received StageTransfers::receive_gradients(const StagePart& part, int m) {
    const int last = part.segments.end - 1;
    const int buffer = plan_.add(
        {fmt::format("gradients of the live values after part {}, micro step {}", part.part, m),
         BufferKind::kLiveValues, Tier::kMemory, model_.segments[last].output_bytes, false});
    return receive({Op::kReceive, true, part.behind, part.part, last, m, buffer});
}

void StageTransfers::send_values(const StagePart& part, int m, int values) {
    add({Op::kSend, false, part.behind, part.part, part.segments.end - 1, m, values});
}

void StageTransfers::send_gradients(const StagePart& part, int m, int gradients) {
    if (gradients < 0) {
        gradients = plan_.add({fmt::format("no gradients, micro step {}", m), BufferKind::kScalars,
                               Tier::kMemory, Bytes{}, false});
        plan_.instructions.back().creates.push_back(gradients);
    }
    add({Op::kSend, true, part.before, part.part - 1, part.segments.begin, m, gradients});
}

}  // namespace dslaunch::plan
