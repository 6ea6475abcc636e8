// The purpose of bytes between hosts, in the words of `dslaunch plan`, metrics.jsonl and the logger
// of communication. The plan counts them by its instructions, a run where they leave.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace dslaunch {

enum class TrafficKind : uint8_t {
    kReduce,  // gradients: sums over ranks
    kGather,  // parameters
    kNorm,    // partial norms of the gradients
    kStage,   // values and gradients between stages of a pipeline
    kTensor,  // values between ranks that share layers or positions
    kControl  // everything else: agreements, facts of a step, descriptions of messages, start, end
};
inline constexpr int kTrafficKinds = 6;

inline constexpr std::array<std::string_view, kTrafficKinds> kTrafficKindNames = {
    "reduce", "gather", "norm", "stage", "tensor", "control"};

[[nodiscard]] constexpr std::string_view traffic_kind_name(TrafficKind kind) {
    return kTrafficKindNames[static_cast<size_t>(kind)];
}

}  // namespace dslaunch
