// libFuzzer target: whatever bytes an agent sends, decoding them throws Error or succeeds. The
// first byte says how the rest is cut. Build: clang++ -std=c++20
// -fsanitize=fuzzer,address,undefined -Ilib tests/fuzz/frame_fuzz.cpp
// lib/launch/{frame,length_prefix,messages,relay_messages,control,line_splitter}.cpp
// lib/base/{wire,error,check,text}.cpp -lfmt
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/error.h"
#include "launch/control.h"
#include "launch/frame.h"
#include "launch/line_splitter.h"
#include "launch/messages.h"
#include "launch/relay_messages.h"

namespace {

using namespace dslaunch;

template <typename Message>
void try_decode(std::string_view bytes) {
    try {
        static_cast<void>(encode(decode<Message>(bytes)));
    } catch (const Error&) {
    }
}

template <typename Message>
void try_decode_relay(std::string_view bytes) {
    try {
        static_cast<void>(encode(decode_relay<Message>(bytes)));
    } catch (const Error&) {
    }
}

void decode_all(std::string_view bytes) {
    try_decode_relay<RelayHello>(bytes), try_decode_relay<RelayHosts>(bytes);
    try_decode_relay<RelayPlace>(bytes), try_decode_relay<RelayBytes>(bytes);
    try_decode_relay<RelayCredit>(bytes), try_decode_relay<RelayEnded>(bytes);
    try_decode<Hello>(bytes), try_decode<AgentHello>(bytes), try_decode<CheckRequest>(bytes);
    try_decode<CheckReply>(bytes), try_decode<PrepareRequest>(bytes);
    try_decode<PrepareReply>(bytes), try_decode<StartRequest>(bytes);
    try_decode<SignalRequest>(bytes), try_decode<WorkerStarted>(bytes);
    try_decode<WorkerOutput>(bytes), try_decode<WorkerExited>(bytes);
    try_decode<WorkerControl>(bytes), try_decode<AgentProblem>(bytes);
}

template <typename Decoder>
void feed(Decoder decoder, std::string_view bytes, size_t piece) {
    try {
        for (; !bytes.empty(); bytes.remove_prefix(std::min(piece, bytes.size()))) {
            decoder.append(bytes.substr(0, piece));
            while (auto frame = decoder.next()) decode_all(frame->payload);
        }
    } catch (const Error&) {
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    if (size == 0) return 0;
    const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
    const size_t piece = size_t{1} + data[0];
    feed(FrameDecoder(false), bytes, piece);
    feed(FrameDecoder(true), bytes, piece);
    feed(ControlDecoder(), bytes, piece);
    feed(RelayDecoder(false), bytes, piece);
    feed(RelayDecoder(true), bytes, piece);
    decode_all(bytes);
    LineSplitter splitter;
    static_cast<void>(splitter.add(bytes));
    static_cast<void>(splitter.finish());
    return 0;
}
