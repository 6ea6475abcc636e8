// Every message that crosses a wire, by the kind of the frame that carries it, as a function that
// reads any bytes: it throws Error, or the message is written and read back the same.
#pragma once

#include <cstdint>
#include <iterator>
#include <string>
#include <string_view>

#include "base/check.h"
#include "health/health_record.h"
#include "launch/agent/device_report.h"
#include "launch/agent/leftover_processes.h"
#include "launch/agent/machine_facts.h"
#include "launch/agent/node_report.h"
#include "launch/network/network_messages.h"
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

inline Heartbeat decode_heartbeat_bytes(std::string_view bytes) {
    return decode_heartbeat(std::string(bytes));
}

inline void read_health_records(std::string_view bytes) {
    const std::string once = encode_all(decode_all_health(bytes));
    DSL_CHECK(once == bytes, "health records have one form only");
}

struct MessageDecoder {
    int kind;  // kind of its frame; -1: it travels in none
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
    row(FrameKind::kListen, read_twice<decode_listen_request>),
    row(FrameKind::kListening, read_twice<decode_listen_reply>),
    row(FrameKind::kProbe, read_twice<decode_probe_request>),
    row(FrameKind::kProbed, read_twice<decode_probe_reply>),
    row(FrameKind::kChooseNetwork, read_twice<decode_choose_request>),
    row(FrameKind::kMachineFacts, read_twice<decode_machine_facts>),
    row(FrameKind::kReportRequest, read_twice<decode_report_request>),
    row(FrameKind::kNodeReport, read_twice<decode_node_report>),
    row(FrameKind::kPushOffer, read_twice<decode_push_offer>),
    row(FrameKind::kPushChunks, read_twice<decode_push_chunks>),
    row(FrameKind::kPushPiece, read_twice<decode_push_piece>),
    row(FrameKind::kPushAnswer, read_twice<decode_push_answer>),
    row(FrameKind::kFetch, read_twice<decode_fetch_request>),
    row(FrameKind::kFetched, read_twice<decode_fetch_reply>),
    row(FrameKind::kStopJob, read_twice<decode_stop_request>),
    row(FrameKind::kJobStopped, read_twice<decode_stop_reply>),
    row(FrameKind::kDevices, read_twice<decode_device_request>),
    row(FrameKind::kDeviceReport, read_twice<decode_device_report>),
    row(FrameKind::kEndProcess, read_twice<decode_end_request>),
    row(FrameKind::kProcessEnded, read_twice<decode_end_reply>),
};

inline constexpr MessageDecoder kRelayMessages[] = {
    row(RelayFrameKind::kHello, read_twice<decode_relay<RelayHello>>),
    row(RelayFrameKind::kHosts, read_twice<decode_relay<RelayHosts>>),
    row(RelayFrameKind::kInput, read_twice<decode_relay<RelayBytes>>),
    row(RelayFrameKind::kCredit, read_twice<decode_relay<RelayCredit>>),
    row(RelayFrameKind::kCloseInput, read_twice<decode_relay<RelayPlace>>),
    row(RelayFrameKind::kAbandon, read_twice<decode_relay<RelayPlace>>),
    row(RelayFrameKind::kOutput, read_twice<decode_relay<RelayBytes>>),
    row(RelayFrameKind::kDiagnostic, read_twice<decode_relay<RelayBytes>>),
    row(RelayFrameKind::kEnded, read_twice<decode_relay<RelayEnded>>),
};

inline constexpr MessageDecoder kWorkerMessages[] = {
    row(ControlKind::kHeartbeat, read_twice<decode_heartbeat_bytes>),
    row(ControlKind::kHealth, read_twice<decode_health>),
};

inline constexpr MessageDecoder kOtherMessages[] = {
    {-1, read_health_records},
    {-1, read_twice<decode_join_identity>},
};

}  // namespace dslaunch::fuzz
