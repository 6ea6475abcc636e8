// Frames between dsworker and its agent over DSL_CONTROL_FD (a stream socket pair): length u32,
// kind u16, payload. A worker without this descriptor (started by hand) writes metrics and results
// itself.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "launch/protocol/frame.h"

namespace dslaunch::launch {

// The kinds of frames between a dsworker and its agent.
enum class ControlKind : uint16_t {
    // worker -> agent -> launcher
    kMetrics = 1,    // one line of metrics.jsonl, without newline
    kRunInfo = 2,    // the JSON object of run.json's "run" member (rank 0, once)
    kProgress = 3,   // one line for the terminal's progress line (rank 0)
    kFailure = 4,    // AgentProblem: why this rank fails; the last frame before it ends
    kHeartbeat = 5,  // a Heartbeat with this rank's position in its work, each second
    kReady = 6,      // the first step has begun
    kHealth = 7,     // one record of `dslaunch health` (health/health_record.h)
    kRunResult = 8,  // the JSON object of run.json's "result" member (rank 0, once, at the end)
    // launcher -> agent -> worker
    kSaveAndEnd = 64,  // save, then end with kOk
};

// The longest payload: a longer frame is an error on both sides.
inline constexpr uint32_t kControlPayloadBytesMax = 16U << 20;

using ControlFrame = BasicFrame<ControlKind>;
using ControlDecoder = BasicFrameDecoder<ControlKind>;
// Returns the rules for control frames.
[[nodiscard]] inline const FrameRules& frame_rules(ControlKind) {
    static constexpr FrameRules kRules{
        "a control frame", kControlPayloadBytesMax, [](uint16_t number) {
            const auto kind = static_cast<ControlKind>(number);
            return (kind >= ControlKind::kMetrics && kind <= ControlKind::kRunResult) ||
                   kind == ControlKind::kSaveAndEnd;
        }};
    return kRules;
}

// The names of a rank's lanes beside "compute": sending to other hosts, and its disk.
inline constexpr const char* kLinkLane = "link";
inline constexpr const char* kDiskLane = "disk";

// The time that a lane of a rank has worked since its start, without the time in which it waited
// for other ranks.
struct LaneTime {
    std::string lane;
    std::chrono::nanoseconds busy{0};
};

// The progress of a rank.
struct Heartbeat {
    static constexpr const char* kWhat = "a heartbeat";
    uint64_t instructions_done = 0;  // since its start, over all lanes
    uint64_t instructions_per_step = 1;
    std::string where;              // step and instruction of each lane, in words
    std::vector<LaneTime> lanes{};  // empty: not measured
    // The job's progress for the terminal, reported by rank 0: fields separated by two blanks. If
    // there is too little room, the last fields are left out first. Empty: nothing to show.
    std::string progress{};

    // Returns the number of steps done, comparable between ranks whose plans differ in length.
    [[nodiscard]] double steps_done() const {
        return static_cast<double>(instructions_done) / static_cast<double>(instructions_per_step);
    }
    // Throws Error{kInternal} for a plan without instructions.
    void check() const {
        if (instructions_per_step == 0)
            fail(ExitCode::kInternal, "received a heartbeat for a plan without instructions");
    }
};

}  // namespace dslaunch::launch
