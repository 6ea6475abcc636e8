// libFuzzer entry: reads any bytes as the stream that an agent, a relay or a worker sends. In
// pieces of any size, the stream gives the same frames, or the same refusal, as in one piece. The
// frames are the same bytes when they are written again. Each payload is refused or is a message.
// The first byte says who reads, and the second one gives the size of the pieces.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "base/error.h"
#include "fuzz/error_checks.h"
#include "fuzz/message_decoders.h"
#include "launch/process/line_splitter.h"

namespace {

using namespace dslaunch;
using namespace dslaunch::health;
using namespace dslaunch::launch;
using namespace dslaunch::fuzz;

std::string again(const Frame& frame) {
    return encode(frame);
}
std::string again(const ControlFrame& frame) {
    return encode(frame);
}
std::string again(const RelayFrame& frame) {
    return relay_frame(frame.kind, frame.payload);
}

// The frames that a reader found in a stream.
struct Outcome {
    std::string written;  // the frames, written again
    std::vector<std::pair<int, std::string>> payloads;
    bool refused = false;

    bool operator==(const Outcome&) const = default;
};

template <typename Decoder>
Outcome feed(Decoder decoder, std::string_view bytes, size_t piece) {
    Outcome outcome;
    try {
        for (; !bytes.empty(); bytes.remove_prefix(std::min(piece, bytes.size()))) {
            decoder.append(bytes.substr(0, piece));
            while (auto frame = decoder.next()) {
                outcome.written += again(*frame);
                outcome.payloads.emplace_back(static_cast<int>(frame->kind),
                                              std::move(frame->payload));
            }
        }
    } catch (const Error& error) {
        DSL_CHECK(error.code() == ExitCode::kInternal, "a bad stream is another version's");
        check_shown(error.what());
        outcome.refused = true;
    }
    return outcome;
}

template <typename Table>
void read_payloads(const Outcome& outcome, const Table& table) {
    for (const auto& [kind, payload] : outcome.payloads) {
        for (const MessageDecoder& decoder : table) {
            if (decoder.kind != kind) continue;
            try {
                decoder.read(payload);
            } catch (const Error& error) {
                check_shown(error.what());
            }
        }
    }
}

// GREETING: the words that the stream must have before its first frame; empty: none.
template <typename Decoder, typename Table>
void try_stream(const Decoder& decoder, const Table& table, std::string_view greeting,
                std::string_view bytes, size_t piece) {
    const Outcome whole = feed(decoder, bytes, bytes.size());
    DSL_CHECK(whole == feed(decoder, bytes, piece), "pieces of {} bytes change what is read",
              piece);
    const size_t at = bytes.find(greeting);
    const bool greeted = at != std::string_view::npos;
    DSL_CHECK(greeted || whole.written.empty(), "no frame before the greeting");
    if (greeted) {
        DSL_CHECK(bytes.substr(at + greeting.size()).starts_with(whole.written),
                  "what is written are the bytes that came");
    }
    read_payloads(whole, table);
}

std::string split(std::string_view bytes, size_t piece) {
    LineSplitter splitter;
    std::string lines;
    for (; !bytes.empty(); bytes.remove_prefix(std::min(piece, bytes.size()))) {
        lines += splitter.add(bytes.substr(0, piece));
    }
    return lines + splitter.finish();
}

void try_lines(std::string_view bytes, size_t piece) {
    std::string lines(bytes);
    if (!lines.empty() && lines.back() != '\n') lines += '\n';
    DSL_CHECK(split(bytes, piece) == lines, "lines are what came, the last one ended");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size_bytes) {
    if (size_bytes < 2) return 0;
    const std::string_view bytes(reinterpret_cast<const char*>(data) + 2, size_bytes - 2);
    const size_t piece = size_t{1} + data[1];
    switch (data[0] % 6) {
        case 0:
            try_stream(FrameDecoder(false), kAgentMessages, {}, bytes, piece);
            break;
        case 1:
            try_stream(FrameDecoder(true), kAgentMessages, kAgentGreeting, bytes, piece);
            break;
        case 2:
            try_stream(RelayDecoder(false), kRelayMessages, {}, bytes, piece);
            break;
        case 3:
            try_stream(RelayDecoder(true), kRelayMessages, kRelayGreeting, bytes, piece);
            break;
        case 4:
            try_stream(ControlDecoder(), kWorkerMessages, {}, bytes, piece);
            break;
        default:
            try_lines(bytes, piece);
    }
    return 0;
}
