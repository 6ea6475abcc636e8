// All messages that are sent between processes, by the kind of their frame. Each has a function
// that reads any bytes: it throws Error, or the message is the same after it is written and read
// again.
#pragma once

#include <cstdint>
#include <iterator>
#include <string>
#include <string_view>

#include "base/check.h"
#include "health/health_record.h"
#include "launch/agent/device_report.h"
#include "launch/agent/end_process.h"
#include "launch/agent/leftover_processes.h"
#include "launch/agent/machine_facts.h"
#include "launch/network/network.h"
#include "launch/protocol/control.h"
#include "launch/protocol/frame.h"
#include "launch/protocol/messages.h"
#include "launch/protocol/push_messages.h"
#include "launch/transport/join/join_handshake.h"
#include "launch/transport/tree/relay_messages.h"

namespace dslaunch::fuzz {

using namespace health;
using namespace launch;

template <auto Decode>
void read_twice(std::string_view bytes) {
    const std::string once = encode(Decode(bytes));
    DSL_CHECK(encode(Decode(once)) == once, "what is written is read back");
}

inline void read_health_records(std::string_view bytes) {
    const std::string once = encode(decode<HealthRecords>(bytes));
    DSL_CHECK(once == bytes, "health records have one form only");
}

struct MessageDecoder {
    int kind;  // kind of its frame; -1: it has no frame
    void (*read)(std::string_view);
};

template <typename Kind>
constexpr MessageDecoder row(Kind kind, void (*read)(std::string_view)) {
    return {static_cast<int>(kind), read};
}

inline constexpr MessageDecoder kAgentMessages[] = {
    row(FrameKind::kHello, read_twice<decode<Hello>>),
    row(FrameKind::kCheck, read_twice<decode<CheckRequest>>),
    row(FrameKind::kPrepare, read_twice<decode<PrepareRequest>>),
    row(FrameKind::kStart, read_twice<decode<StartRequest>>),
    row(FrameKind::kSignal, read_twice<decode<SignalRequest>>),
    row(FrameKind::kStop, read_twice<decode<StopRequest>>),
    row(FrameKind::kAgentHello, read_twice<decode<AgentHello>>),
    row(FrameKind::kChecked, read_twice<decode<CheckReply>>),
    row(FrameKind::kPrepared, read_twice<decode<PrepareReply>>),
    row(FrameKind::kStarted, read_twice<decode<WorkerStarted>>),
    row(FrameKind::kOutput, read_twice<decode<WorkerOutput>>),
    row(FrameKind::kExited, read_twice<decode<WorkerExited>>),
    row(FrameKind::kControl, read_twice<decode<WorkerControl>>),
    row(FrameKind::kProblem, read_twice<decode<AgentProblem>>),
    row(FrameKind::kAskedToEnd, read_twice<decode<SignalRequest>>),
    row(FrameKind::kListen, read_twice<decode<ListenRequest>>),
    row(FrameKind::kListening, read_twice<decode<ListenReply>>),
    row(FrameKind::kProbe, read_twice<decode<ProbeRequest>>),
    row(FrameKind::kProbed, read_twice<decode<ProbeReply>>),
    row(FrameKind::kChooseNetwork, read_twice<decode<ChooseRequest>>),
    row(FrameKind::kMachineFacts, read_twice<decode<MachineFacts>>),
    row(FrameKind::kReportRequest, read_twice<decode<ReportRequest>>),
    row(FrameKind::kNodeReport, read_twice<decode<NodeReport>>),
    row(FrameKind::kPushOffer, read_twice<decode<PushOffer>>),
    row(FrameKind::kPushChunks, read_twice<decode<PushChunks>>),
    row(FrameKind::kPushPiece, read_twice<decode<PushPiece>>),
    row(FrameKind::kPushAnswer, read_twice<decode<PushAnswer>>),
    row(FrameKind::kFetch, read_twice<decode<FetchRequest>>),
    row(FrameKind::kFetched, read_twice<decode<FetchReply>>),
    row(FrameKind::kStopJob, read_twice<decode<StopJobRequest>>),
    row(FrameKind::kJobStopped, read_twice<decode<StopJobReply>>),
    row(FrameKind::kDevices, read_twice<decode<DeviceUseRequest>>),
    row(FrameKind::kDeviceReport, read_twice<decode<DeviceUseReport>>),
    row(FrameKind::kEndProcess, read_twice<decode<EndProcessRequest>>),
    row(FrameKind::kProcessEnded, read_twice<decode<EndProcessReply>>),
};

inline constexpr MessageDecoder kRelayMessages[] = {
    row(RelayFrameKind::kHello, read_twice<decode<RelayHello>>),
    row(RelayFrameKind::kHosts, read_twice<decode<RelayHosts>>),
    row(RelayFrameKind::kInput, read_twice<decode<RelayBytes>>),
    row(RelayFrameKind::kCredit, read_twice<decode<RelayCredit>>),
    row(RelayFrameKind::kCloseInput, read_twice<decode<RelayPlace>>),
    row(RelayFrameKind::kAbandon, read_twice<decode<RelayPlace>>),
    row(RelayFrameKind::kOutput, read_twice<decode<RelayBytes>>),
    row(RelayFrameKind::kDiagnostic, read_twice<decode<RelayBytes>>),
    row(RelayFrameKind::kEnded, read_twice<decode<RelayEnded>>),
};

inline constexpr MessageDecoder kWorkerMessages[] = {
    row(ControlKind::kHeartbeat, read_twice<decode<Heartbeat>>),
    row(ControlKind::kFailure, read_twice<decode<AgentProblem>>),
    row(ControlKind::kHealth, read_twice<decode<HealthMessage>>),
};

inline constexpr MessageDecoder kOtherMessages[] = {
    {-1, read_health_records},
    {-1, read_twice<decode<JoinIdentity>>},
};

}  // namespace dslaunch::fuzz
