#include "launch/protocol/frame.h"

#include "base/check.h"
#include "base/error.h"
#include "launch/protocol/length_prefix.h"

namespace dslaunch::launch {
namespace {

bool is_frame_kind(uint16_t kind) {
    const auto within = [kind](FrameKind first, FrameKind last) {
        return kind >= static_cast<uint16_t>(first) && kind <= static_cast<uint16_t>(last);
    };
    return within(FrameKind::kHello, FrameKind::kPing) ||
           within(FrameKind::kAgentHello, FrameKind::kProblem) ||
           within(FrameKind::kAskedToEnd, FrameKind::kAskedToEnd) ||
           within(FrameKind::kStopJob, FrameKind::kProcessEnded) ||
           within(FrameKind::kReportRequest, FrameKind::kFetch) ||
           within(FrameKind::kNodeReport, FrameKind::kFetched) ||
           within(FrameKind::kListen, FrameKind::kMachineFacts);
}

}  // namespace

std::string encode(const Frame& frame) {
    DSL_CHECK(frame.payload.size() <= kFramePayloadBytesMax, "a frame of {} bytes",
              frame.payload.size());
    return add_length_prefix(static_cast<uint16_t>(frame.kind), frame.payload);
}

void FrameDecoder::append(std::string_view bytes) {
    buffer_.append(bytes);
    if (!greeted_) look_for_greeting();
}

void FrameDecoder::look_for_greeting() {
    const size_t at = buffer_.find(kAgentGreeting);
    if (at != std::string::npos) {
        noise_ = buffer_.substr(0, at);
        buffer_.erase(0, at + kAgentGreeting.size());
        greeted_ = true;
    } else if (buffer_.size() > kGreetingNoiseBytesMax) {
        fail(ExitCode::kInternal, "the host printed over {} bytes and no agent greeted",
             kGreetingNoiseBytesMax);
    } else {
        noise_ = buffer_;
    }
}

std::optional<Frame> FrameDecoder::next() {
    if (!greeted_) return std::nullopt;
    auto taken = take_length_prefixed(buffer_, used_, kFramePayloadBytesMax);
    if (!taken) return std::nullopt;
    if (!is_frame_kind(taken->kind)) {
        fail(ExitCode::kInternal, "a frame of the unknown kind {}", taken->kind);
    }
    return Frame{static_cast<FrameKind>(taken->kind), std::move(taken->payload)};
}

}  // namespace dslaunch::launch
