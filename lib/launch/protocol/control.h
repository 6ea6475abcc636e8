// Frames between dsworker and its agent over DSL_CONTROL_FD (a stream socket pair): length u32,
// kind u16, payload. A worker without one (started by hand) writes metrics and results itself.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/fd.h"

namespace dslaunch::launch {

enum class ControlKind : uint16_t {
    // worker -> agent -> launcher
    kMetrics = 1,   // one line of metrics.jsonl, without newline
    kRunInfo = 2,   // the JSON object of run.json's "run" member (rank 0, once)
    kProgress = 3,  // one line for the terminal's progress line (rank 0)
    kFailure = 4,  // why this rank fails: exit code u32, then the message; the last frame before it
                   // ends
    kHeartbeat = 5,  // a Heartbeat with this rank's place in its work, each second
    kReady = 6,      // the first step has begun
    kHealth = 7,     // one record of `dslaunch health` (health/health_record.h)
    // launcher -> agent -> worker
    kSaveAndEnd = 64,  // save, then end with kOk
};

struct ControlFrame {
    ControlKind kind = ControlKind::kHeartbeat;
    std::string payload;
};

// The time that a lane of a rank has worked since its start, waits for other ranks not counted.
struct LaneTime {
    std::string lane;
    std::chrono::nanoseconds busy{0};
};

// The point to which a rank has come.
struct Heartbeat {
    uint64_t instructions_done = 0;  // since its start, over all lanes
    uint64_t instructions_per_step = 1;
    std::string where;              // step and instruction of each lane, in words; no NUL
    std::vector<LaneTime> lanes{};  // empty: not measured
    // How far the job is, for the terminal: fields that two blanks part, the last ones left out
    // first. Rank 0's; empty: nothing is to be told.
    std::string progress{};

    // Comparable between ranks whose plans differ in length.
    [[nodiscard]] double steps_done() const {
        return static_cast<double>(instructions_done) / static_cast<double>(instructions_per_step);
    }
};
[[nodiscard]] std::string encode(const Heartbeat& heartbeat);
// Throws Error{kInternal} for a payload that is none.
[[nodiscard]] Heartbeat decode_heartbeat(const std::string& payload);

// The longest payload: a longer frame is an error on both sides.
inline constexpr uint32_t kControlPayloadBytesMax = 16U << 20;

[[nodiscard]] std::string encode(const ControlFrame& frame);

// Takes whole frames out of a byte stream that arrives in pieces.
class ControlDecoder {
  public:
    void append(std::string_view bytes) { buffer_.append(bytes); }
    // The next whole frame; throws Error{kInternal} on a length over the limit or an unknown kind.
    [[nodiscard]] std::optional<ControlFrame> next();

  private:
    std::string buffer_;
    size_t used_ = 0;
};

}  // namespace dslaunch::launch
