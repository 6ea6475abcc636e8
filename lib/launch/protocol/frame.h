// Frames: length u32, kind u16, payload, little-endian. They pass between dslaunch and its agents
// over the agent's stdin and stdout, and with kinds of their own between a worker and its agent
// (control.h) and above a relay (transport/tree/relay_messages.h). messages.h has the messages in
// the payloads; their page is docs/dev/agent-protocol.md.
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
    kProblem = 73,     // text: why the agent gives up; ExitCode u32, then the message
    // 100 to 109: agents that called back
    kAskedToEnd = 100,  // SignalRequest: a scheduler sent this agent a signal
    // network of the ranks (launch/network/network.h), launcher -> agent and back
    kListen = 170,         // ListenRequest, to every host
    kListening = 171,      // ListenReply
    kProbe = 172,          // ProbeRequest
    kProbed = 173,         // ProbeReply
    kChooseNetwork = 174,  // ChooseRequest; no answer
    kMachineFacts = 175,   // MachineFacts, an agent's first frame; AgentHello follows it
    // launcher -> agent, of commands on hosts
    kReportRequest = 150,  // ReportRequest
    kPushOffer = 151,      // PushOffer
    kPushChunks = 152,     // PushChunks
    kPushPiece = 153,      // PushPiece
    kFetch = 154,          // FetchRequest, of a job too
    // agent -> launcher
    kNodeReport = 160,  // NodeReport
    kPushAnswer = 161,  // PushAnswer
    kFetched = 162,     // FetchReply
    // `dslaunch stop`, for a job whose launcher is dead, and a launcher before a further attempt
    // (launch/agent/device_report.h)
    kStopJob = 140,     // StopJobRequest, launcher -> agent
    kJobStopped = 141,  // StopJobReply, agent -> launcher
    // `dslaunch ps --devices`, `dslaunch stop --pid` (launch/agent/device_report.h)
    kDevices = 142,       // DeviceUseRequest, launcher -> agent
    kDeviceReport = 143,  // DeviceUseReport, agent -> launcher
    kEndProcess = 144,    // EndProcessRequest, launcher -> agent
    kProcessEnded = 145,  // EndProcessReply, agent -> launcher
};

// The longest payload; longer frames are an error on both sides. A control frame of a worker
// (kControlPayloadBytesMax) fits with its header.
inline constexpr uint32_t kFramePayloadBytesMax = (16U << 20) + 4096;

// An agent writes this before its first frame. Earlier output, as from a login script, is skipped.
inline constexpr std::string_view kAgentGreeting{"\0dslaunch-agent\n", 16};
inline constexpr size_t kGreetingNoiseBytesMax = 64U << 10;

// The rules of the frames with one enum of kinds; frame_rules(Kind()) returns Kind's.
struct FrameRules {
    const char* name;  // name of such a frame in messages, as "a frame"
    uint32_t payload_bytes_max;
    bool (*has_kind)(uint16_t kind);
    std::string_view greeting = {};  // before the first frame of a stream
    const char* greeter = "";        // who greets, in messages
};
[[nodiscard]] const FrameRules& frame_rules(FrameKind);

template <typename Kind>
struct BasicFrame {
    Kind kind{};
    std::string payload;
};
using Frame = BasicFrame<FrameKind>;

// Returns a whole frame. REQUIRES: PAYLOAD is within the limit.
[[nodiscard]] std::string frame_bytes(const FrameRules& rules, uint16_t kind,
                                      std::string_view payload);
template <typename Kind>
[[nodiscard]] std::string encode(const BasicFrame<Kind>& frame) {
    return frame_bytes(frame_rules(Kind()), static_cast<uint16_t>(frame.kind), frame.payload);
}

// Takes whole frames out of a byte stream that arrives in pieces. After an exception it must not be
// used again.
class FrameStream {
  public:
    // Throws Error{kInternal} on more noise than allowed before the greeting.
    void append(std::string_view bytes);
    // Returns the bytes before the greeting, or all bytes so far if it has not come.
    [[nodiscard]] const std::string& noise() const { return greeted_ ? noise_ : buffer_; }
    [[nodiscard]] bool greeted() const { return greeted_; }

  protected:
    FrameStream(const FrameRules& rules, bool with_greeting)
        : rules_(&rules), greeted_(!with_greeting) {}
    [[nodiscard]] std::optional<BasicFrame<uint16_t>> take();

  private:
    const FrameRules* rules_;
    std::string buffer_;
    size_t used_ = 0;  // of buffer_
    bool greeted_;
    std::string noise_;
};

template <typename Kind>
class BasicFrameDecoder : public FrameStream {
  public:
    // WITH_GREETING: everything up to and including the greeting is skipped.
    explicit BasicFrameDecoder(bool with_greeting = false)
        : FrameStream(frame_rules(Kind()), with_greeting) {}

    // Returns the next whole frame. Throws Error{kInternal} on a length over the limit, as soon as
    // it is there, or an unknown kind.
    [[nodiscard]] std::optional<BasicFrame<Kind>> next() {
        auto taken = take();
        if (!taken) return std::nullopt;
        return BasicFrame<Kind>{static_cast<Kind>(taken->kind), std::move(taken->payload)};
    }
};
using FrameDecoder = BasicFrameDecoder<FrameKind>;

}  // namespace dslaunch::launch
