// Frames: length u32, kind u16, payload, little-endian. They are sent between dslaunch and its
// agents over the agent's stdin and stdout and, with kinds of their own, between a worker and its
// agent (control.h) and between a relay and its starter (transport/tree/relay_messages.h).
// messages.h contains the messages in the payloads; docs/dev/agent-protocol.md describes them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/text/message.h"

namespace dslaunch::launch {

using dslaunch::decode;
using dslaunch::encode;

// The kinds of frames between launcher and agent, with their payloads.
enum class FrameKind : uint16_t {
    // launcher -> agent
    kHello = 1,    // Hello; the first frame
    kCheck = 2,    // CheckRequest
    kPrepare = 3,  // PrepareRequest
    kStart = 4,    // StartRequest
    kSignal = 5,   // SignalRequest: to the group of every worker
    kSave = 6,     // empty: ControlKind::kSaveAndEnd to every dsworker
    kStop = 7,     // StopRequest or empty: end everything, then the agent itself
    kPing = 8,     // empty
    // agent -> launcher
    kAgentHello = 64,  // AgentHello
    kChecked = 65,     // CheckReply
    kPrepared = 66,    // PrepareReply
    kStarted = 67,     // WorkerStarted
    kOutput = 68,      // WorkerOutput
    kExited = 69,      // WorkerExited
    kControl = 70,     // WorkerControl
    kPong = 71,        // empty
    kGone = 72,        // empty: every process of the job on this node is gone; the last frame
    kProblem = 73,     // AgentProblem: why the agent gives up
    // 100 to 109: from agents that called back
    kAskedToEnd = 100,  // SignalRequest: a scheduler sent this agent a signal
    // the ranks' network (launch/network/network.h), launcher -> agent and back
    kListen = 170,         // ListenRequest, to every host
    kListening = 171,      // ListenReply
    kProbe = 172,          // ProbeRequest
    kProbed = 173,         // ProbeReply
    kChooseNetwork = 174,  // ChooseRequest; no answer
    kMachineFacts = 175,   // MachineFacts, an agent's first frame; AgentHello follows it
    // launcher -> agent, in commands on hosts
    kReportRequest = 150,  // ReportRequest
    kPushOffer = 151,      // PushOffer
    kPushChunks = 152,     // PushChunks
    kPushPiece = 153,      // PushPiece
    kFetch = 154,          // FetchRequest; jobs use it too
    // agent -> launcher
    kNodeReport = 160,  // NodeReport
    kPushAnswer = 161,  // PushAnswer
    kFetched = 162,     // FetchReply
    // sent for `dslaunch stop` if the job's launcher is dead, and by a launcher before a further
    // attempt (launch/agent/leftover_processes.h)
    kStopJob = 140,     // StopJobRequest, launcher -> agent
    kJobStopped = 141,  // StopJobReply, agent -> launcher
    // sent for `dslaunch ps --devices` (launch/agent/device_report.h) and `dslaunch stop --pid`
    // (launch/agent/end_process.h)
    kDevices = 142,       // DeviceUseRequest, launcher -> agent
    kDeviceReport = 143,  // DeviceUseReport, agent -> launcher
    kEndProcess = 144,    // EndProcessRequest, launcher -> agent
    kProcessEnded = 145,  // EndProcessReply, agent -> launcher
};

// The longest payload; longer frames are an error on both sides. A worker's control frame
// (kControlPayloadBytesMax) fits in, including its header.
inline constexpr uint32_t kFramePayloadBytesMax = (16U << 20) + 4096;

// An agent writes this before its first frame. Earlier output, such as a login script's, is
// skipped.
inline constexpr std::string_view kAgentGreeting{"\0dslaunch-agent\n", 16};
inline constexpr size_t kGreetingNoiseBytesMax = 64U << 10;

// The rules for the frames of one protocol. Each protocol has an enum with the kinds of its frames,
// for example FrameKind. frame_rules(Kind()) returns the rules of the protocol with the enum Kind.
struct FrameRules {
    const char* name;  // name of these frames in messages, such as "a frame"
    uint32_t payload_bytes_max;
    bool (*has_kind)(uint16_t kind);
    std::string_view greeting = {};  // bytes before the first frame of a stream
    const char* greeter = "";        // name of the side that greets, in messages
};
// Returns the rules for the frames between launcher and agent.
[[nodiscard]] const FrameRules& frame_rules(FrameKind);

// A frame of the kinds in the enum KIND.
template <typename Kind>
struct BasicFrame {
    Kind kind{};
    std::string payload;
};
using Frame = BasicFrame<FrameKind>;

// Returns the bytes of a whole frame. REQUIRES: PAYLOAD has at most RULES.payload_bytes_max bytes.
[[nodiscard]] std::string frame_bytes(const FrameRules& rules, uint16_t kind,
                                      std::string_view payload);
// Returns the bytes of FRAME. REQUIRES: its payload is within the limit.
template <typename Kind>
[[nodiscard]] std::string encode(const BasicFrame<Kind>& frame) {
    return frame_bytes(frame_rules(Kind()), static_cast<uint16_t>(frame.kind), frame.payload);
}

// Extracts whole frames from a byte stream that arrives in pieces. It must not be used again after
// an exception.
class FrameStream {
  public:
    // Adds bytes of the stream. Throws Error{kInternal} if more than kGreetingNoiseBytesMax bytes
    // precede the greeting.
    void append(std::string_view bytes);
    // Returns the bytes before the greeting, or all bytes so far if the greeting has not arrived.
    [[nodiscard]] const std::string& noise() const { return is_greeted_ ? noise_ : buffer_; }
    // Returns true after the greeting, or if the stream has no greeting.
    [[nodiscard]] bool greeted() const { return is_greeted_; }

  protected:
    FrameStream(const FrameRules& rules, bool with_greeting)
        : rules_(&rules), is_greeted_(!with_greeting) {}
    [[nodiscard]] std::optional<BasicFrame<uint16_t>> take();

  private:
    const FrameRules* rules_;
    std::string buffer_;
    size_t used_ = 0;  // bytes of buffer_ that were already taken
    bool is_greeted_;
    std::string noise_;
};

// A stream of frames of the kinds in the enum KIND.
template <typename Kind>
class BasicFrameDecoder : public FrameStream {
  public:
    // WITH_GREETING: everything up to and including the greeting is skipped.
    explicit BasicFrameDecoder(bool with_greeting = false)
        : FrameStream(frame_rules(Kind()), with_greeting) {}

    // Returns the next whole frame. Throws Error{kInternal} on an unknown kind, or on a length over
    // the limit as soon as the length has arrived.
    [[nodiscard]] std::optional<BasicFrame<Kind>> next() {
        auto taken = take();
        if (!taken) return std::nullopt;
        return BasicFrame<Kind>{static_cast<Kind>(taken->kind), std::move(taken->payload)};
    }
};
using FrameDecoder = BasicFrameDecoder<FrameKind>;

}  // namespace dslaunch::launch
