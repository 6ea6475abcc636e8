// libFuzzer: any bytes as the payload of one frame (the first byte says of which) are refused by an
// Error, or mean a message that is read back the same after it was written. One decoder a run, so
// that each is met more often than by frame_fuzz.
//   clang++ -std=c++20 -g -fsanitize=fuzzer,address,undefined -Ilib tests/fuzz/message_fuzz.cpp
//   lib/launch/{frame,length_prefix,messages,control}.cpp lib/base/{wire,error,check,text,fd}.cpp
//   -lfmt
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "base/error.h"
#include "launch/control.h"
#include "launch/messages.h"

namespace {

using namespace dslaunch;

template <typename Message>
void try_message(std::string_view bytes) {
    const std::string once = encode(decode<Message>(bytes));
    DSL_CHECK(encode(decode<Message>(once)) == once, "what is written is read back");
}

void try_control(std::string_view bytes) {
    ControlDecoder decoder;
    decoder.append(bytes);
    while (const auto frame = decoder.next()) {
        ControlDecoder again;
        again.append(encode(*frame));
        DSL_CHECK(again.next()->payload == frame->payload, "what is written is read back");
    }
}

void try_heartbeat(std::string_view bytes) {
    const std::string once = encode(decode_heartbeat(std::string(bytes)));
    DSL_CHECK(encode(decode_heartbeat(once)) == once, "what is written is read back");
}

using Decoder = void (*)(std::string_view);
constexpr Decoder kDecoders[] = {try_message<Hello>,
                                 try_message<AgentHello>,
                                 try_message<CheckRequest>,
                                 try_message<CheckReply>,
                                 try_message<PrepareRequest>,
                                 try_message<PrepareReply>,
                                 try_message<StartRequest>,
                                 try_message<SignalRequest>,
                                 try_message<WorkerStarted>,
                                 try_message<WorkerOutput>,
                                 try_message<WorkerExited>,
                                 try_message<WorkerControl>,
                                 try_message<AgentProblem>,
                                 try_control,
                                 try_heartbeat};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size_bytes) {
    if (size_bytes == 0) return 0;
    const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size_bytes - 1);
    try {
        kDecoders[data[0] % std::size(kDecoders)](bytes);
    } catch (const Error&) {
    }
    return 0;
}
