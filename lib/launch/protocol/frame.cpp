#include "launch/protocol/frame.h"

#include "base/check.h"
#include "base/error.h"
#include "base/text/wire.h"

namespace dslaunch::launch {
namespace {

constexpr size_t kHeaderBytes = 6;

template <typename Kind>
bool is_within(uint16_t kind, Kind first, Kind last) {
    return kind >= static_cast<uint16_t>(first) && kind <= static_cast<uint16_t>(last);
}

bool is_frame_kind(uint16_t kind) {
    using enum FrameKind;
    return is_within(kind, kHello, kPing) || is_within(kind, kAgentHello, kProblem) ||
           is_within(kind, kAskedToEnd, kAskedToEnd) || is_within(kind, kStopJob, kProcessEnded) ||
           is_within(kind, kReportRequest, kFetch) || is_within(kind, kNodeReport, kFetched) ||
           is_within(kind, kListen, kMachineFacts);
}

uint32_t little_endian(std::string_view bytes) {
    uint32_t value = 0;
    for (size_t i = bytes.size(); i-- > 0;) {
        value = value << 8 | static_cast<unsigned char>(bytes[i]);
    }
    return value;
}

}  // namespace

const FrameRules& frame_rules(FrameKind) {
    static constexpr FrameRules kRules{"a frame", kFramePayloadBytesMax, is_frame_kind,
                                       kAgentGreeting, "agent"};
    return kRules;
}

std::string frame_bytes(const FrameRules& rules, uint16_t kind, std::string_view payload) {
    DSL_CHECK(payload.size() <= rules.payload_bytes_max, "{} of {} bytes is too large", rules.name,
              payload.size());
    std::string bytes;
    bytes.reserve(kHeaderBytes + payload.size());
    const auto length = static_cast<uint32_t>(payload.size());
    for (int shift = 0; shift < 32; shift += 8) bytes.push_back(static_cast<char>(length >> shift));
    for (int shift = 0; shift < 16; shift += 8) bytes.push_back(static_cast<char>(kind >> shift));
    bytes.append(payload);
    return bytes;
}

void FrameStream::append(std::string_view bytes) {
    buffer_.append(bytes);
    if (is_greeted_) return;
    const size_t at = buffer_.find(rules_->greeting);
    if (at != std::string::npos) {
        noise_ = buffer_.substr(0, at);
        buffer_.erase(0, at + rules_->greeting.size());
        is_greeted_ = true;
    } else if (buffer_.size() > kGreetingNoiseBytesMax) {
        fail(ExitCode::kInternal, "the host printed more than {} bytes, but no {} answered",
             kGreetingNoiseBytesMax, rules_->greeter);
    }
}

std::optional<BasicFrame<uint16_t>> FrameStream::take() {
    if (!is_greeted_) return std::nullopt;
    const std::string_view rest = std::string_view(buffer_).substr(used_);
    const bool has_header = rest.size() >= kHeaderBytes;
    const uint32_t length = has_header ? little_endian(rest.substr(0, 4)) : 0;
    if (length > rules_->payload_bytes_max) {
        fail(ExitCode::kInternal, "received a frame of {} bytes, but the limit is {}", length,
             rules_->payload_bytes_max);
    }
    if (!has_header || rest.size() < kHeaderBytes + length) {
        buffer_.erase(0, std::exchange(used_, 0));
        return std::nullopt;
    }
    const auto kind = static_cast<uint16_t>(little_endian(rest.substr(4, 2)));
    if (!rules_->has_kind(kind))
        fail(ExitCode::kInternal, "received {} of the unknown kind {}", rules_->name, kind);
    used_ += kHeaderBytes + length;
    return BasicFrame<uint16_t>{kind, std::string(rest.substr(kHeaderBytes, length))};
}

}  // namespace dslaunch::launch
