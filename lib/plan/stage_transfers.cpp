#include "plan/stage_transfers.h"

#include <fmt/core.h>

#include <utility>

namespace dslaunch {

int StageTransfers::add_buffer(PlanBuffer buffer) {
    plan_.buffers.push_back(std::move(buffer));
    return static_cast<int>(plan_.buffers.size()) - 1;
}

void StageTransfers::add_places() {
    if (!options_.stage_work.in_pipeline()) return;
    for (int sort = 0; sort < 2; ++sort)
        for (int k = 0; k < 2; ++k)
            places_[sort][k] = add_buffer(
                {fmt::format("place for received {}, {}", sort == 0 ? "values" : "gradients", k),
                 BufferKind::kScalars, Tier::kMemory, Bytes{8}, true});
    for (int k = 0; k < 2; ++k)
        turns_[k] = add_buffer({fmt::format("turn of works, {}", k), BufferKind::kScalars,
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
    Instruction& made = plan_.instructions.emplace_back();
    const bool sends = transfer.op == Op::kSend;
    made.op = transfer.op;
    made.lane = transfer.gradients ? (sends ? Lane::kSendBack : Lane::kReceiveBack)
                                   : (sends ? Lane::kSend : Lane::kReceive);
    made.gradients = transfer.gradients;
    made.segment = transfer.segment;
    made.micro_step = transfer.micro_step;
    made.bytes = plan_.buffers[static_cast<size_t>(transfer.buffer)].bytes;
    (sends ? made.frees : made.creates) = {transfer.buffer};
    return made;
}

int StageTransfers::receive_values(int m) {
    const int buffer =
        add_buffer({fmt::format("live values before the stage, micro step {}", m),
                    BufferKind::kLiveValues, Tier::kMemory, options_.stage_work.received, false});
    add({Op::kReceive, false, 0, m, buffer}).writes = {place_of_values(m), turn_};
    return buffer;
}

int StageTransfers::receive_gradients(int m) {
    const int buffer = add_buffer(
        {fmt::format("gradients of the live values behind the stage, micro step {}", m),
         BufferKind::kLiveValues, Tier::kMemory, model_.segments.back().output_bytes, false});
    add({Op::kReceive, true, last_segment(), m, buffer}).writes = {place_of_gradients(m), turn_};
    return buffer;
}

void StageTransfers::send_values(int m, int values) {
    add({Op::kSend, false, last_segment(), m, values});
}

void StageTransfers::send_gradients(int m, int gradients) {
    if (gradients < 0) {
        gradients = add_buffer({fmt::format("no gradients, micro step {}", m), BufferKind::kScalars,
                                Tier::kMemory, Bytes{}, false});
        plan_.instructions.back().creates.push_back(gradients);
    }
    add({Op::kSend, true, 0, m, gradients});
}

}  // namespace dslaunch
