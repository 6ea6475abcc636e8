#include "launch/protocol/control.h"

#include "base/check.h"
#include "base/error.h"
#include "base/text/wire.h"
#include "launch/protocol/length_prefix.h"

namespace dslaunch::launch {
namespace {

bool is_control_kind(uint16_t kind) {
    return (kind >= static_cast<uint16_t>(ControlKind::kMetrics) &&
            kind <= static_cast<uint16_t>(ControlKind::kHealth)) ||
           kind == static_cast<uint16_t>(ControlKind::kSaveAndEnd);
}

}  // namespace

std::string encode(const ControlFrame& frame) {
    DSL_CHECK(frame.payload.size() <= kControlPayloadBytesMax, "a control frame of {} bytes",
              frame.payload.size());
    return add_length_prefix(static_cast<uint16_t>(frame.kind), frame.payload);
}

std::string encode(const Heartbeat& heartbeat) {
    WireWriter writer;
    writer.u64(heartbeat.instructions_done).u64(heartbeat.instructions_per_step);
    std::string bytes = writer.bytes() + heartbeat.where;
    if (heartbeat.lanes.empty() && heartbeat.progress.empty()) return bytes;
    // Behind a NUL, where a reader that knows no lanes takes it for a part of the words.
    WireWriter lanes;
    lanes.u8(0).u32(static_cast<uint32_t>(heartbeat.lanes.size()));
    for (const LaneTime& lane : heartbeat.lanes) lanes.string(lane.lane).i64(lane.busy.count());
    if (!heartbeat.progress.empty()) lanes.string(heartbeat.progress);
    return bytes + lanes.bytes();
}

Heartbeat decode_heartbeat(const std::string& payload) {
    WireReader reader(payload, "a heartbeat");
    Heartbeat heartbeat;
    heartbeat.instructions_done = reader.u64();
    heartbeat.instructions_per_step = reader.u64();
    if (heartbeat.instructions_per_step == 0)
        fail(ExitCode::kInternal, "a heartbeat of a plan without instructions");
    heartbeat.where = payload.substr(2 * sizeof(uint64_t));
    const size_t end = heartbeat.where.find('\0');
    if (end == std::string::npos) return heartbeat;
    WireReader lanes(std::string_view(heartbeat.where).substr(end + 1), "a heartbeat's lanes");
    for (uint32_t left = lanes.u32(); left > 0; --left) {
        LaneTime lane;
        lane.lane = lanes.string();
        lane.busy = std::chrono::nanoseconds(lanes.i64());
        heartbeat.lanes.push_back(std::move(lane));
    }
    if (!lanes.done()) heartbeat.progress = lanes.string();
    if (!lanes.done()) fail(ExitCode::kInternal, "a heartbeat: bytes are left over");
    heartbeat.where.resize(end);
    return heartbeat;
}

std::optional<ControlFrame> ControlDecoder::next() {
    auto taken = take_length_prefixed(buffer_, used_, kControlPayloadBytesMax);
    if (!taken) return std::nullopt;
    if (!is_control_kind(taken->kind)) {
        fail(ExitCode::kInternal, "a control frame of the unknown kind {}", taken->kind);
    }
    return ControlFrame{static_cast<ControlKind>(taken->kind), std::move(taken->payload)};
}

}  // namespace dslaunch::launch
