// The purposes for which bytes travel between hosts. `dslaunch plan`, metrics.jsonl and the
// communication log use their names. The plan counts the bytes of its instructions; a run counts
// the bytes that it sends.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace dslaunch {

// Each byte that is sent counts under exactly one kind.
enum class TrafficKind : uint8_t {
    kReduce,  // gradients: sums over ranks
    kGather,  // parameters
    kNorm,    // partial norms of the gradients
    kStage,   // values and gradients between stages of a pipeline
    kTensor,  // values between ranks that share layers or positions
    kControl  // everything else: agreements, facts of a step, message headers, start, end
};
inline constexpr int kTrafficKinds = 6;

inline constexpr std::array<std::string_view, kTrafficKinds> kTrafficKindNames = {
    "reduce", "gather", "norm", "stage", "tensor", "control"};

// Returns "reduce", "gather", …
[[nodiscard]] constexpr std::string_view traffic_kind_name(TrafficKind kind) {
    return kTrafficKindNames[static_cast<size_t>(kind)];
}

}  // namespace dslaunch
