// Frames between dslaunch and its agents: length u32, kind u16, payload, little-endian, over the
// agent's stdin and stdout. The messages in the payloads are in launch/protocol/messages.h, the
// page about them is docs/dev/agent-protocol.md.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace dslaunch::launch {

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
    // network of the ranks (launch/network/network_messages.h), launcher -> agent and back
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
    // (launch/agent/leftover_processes.h)
    kStopJob = 140,     // StopJobRequest, launcher -> agent
    kJobStopped = 141,  // StopJobReply, agent -> launcher
    // `dslaunch ps --devices`, `dslaunch stop --pid` (launch/agent/device_report.h)
    kDevices = 142,       // DeviceUseRequest, launcher -> agent
    kDeviceReport = 143,  // DeviceUseReport, agent -> launcher
    kEndProcess = 144,    // EndProcessRequest, launcher -> agent
    kProcessEnded = 145,  // EndProcessReply, agent -> launcher
};

struct Frame {
    FrameKind kind = FrameKind::kPing;
    std::string payload;
};

// The longest payload; longer frames are an error on both sides. A control frame of a worker
// (kControlPayloadBytesMax) fits with its header.
inline constexpr uint32_t kFramePayloadBytesMax = (16U << 20) + 4096;

// An agent writes this before its first frame. What a login script printed before it is skipped.
inline constexpr std::string_view kAgentGreeting{"\0dslaunch-agent\n", 16};
inline constexpr size_t kGreetingNoiseBytesMax = 64U << 10;

// REQUIRES: payload within the limit.
[[nodiscard]] std::string encode(const Frame& frame);

// Takes whole frames out of a byte stream that arrives in pieces. After an exception it must not be
// used again.
class FrameDecoder {
  public:
    // With_greeting: everything up to and including kAgentGreeting is skipped. What stood before
    // it, or all that has come as long as it has not, is in noise().
    explicit FrameDecoder(bool with_greeting) : greeted_(!with_greeting) {}

    void append(std::string_view bytes);
    // The next whole frame. Throws Error{kInternal} on a length over the limit, an unknown kind, or
    // more noise than allowed before the greeting.
    [[nodiscard]] std::optional<Frame> next();
    [[nodiscard]] const std::string& noise() const { return greeted_ ? noise_ : buffer_; }
    [[nodiscard]] bool greeted() const { return greeted_; }

  private:
    void look_for_greeting();

    std::string buffer_;
    size_t used_ = 0;
    bool greeted_;
    std::string noise_;
};

}  // namespace dslaunch::launch
