// The order of a pipeline's micro batches: one enum for the config (`dslaunch.pipeline.schedule`)
// and for the plans that implement it. Threads: pure functions.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

namespace dslaunch {

// The order in which one stage works on the forwards and backwards of a step.
enum class ScheduleKind : uint8_t {
    kGPipe,         // all forwards, then all backwards
    k1F1B,          // forwards and backwards in turn, as soon as a backward can begin
    kInterleaved,   // 1F1B with several chunks a stage: smaller bubble, more transfers
    kZeroBubbleH1,  // 1F1B with split backwards; no more activations than 1F1B's first stage
    kZeroBubbleV,   // two chunks a stage, the second half of the model in reverse; split backwards
};
inline constexpr std::array kScheduleKinds = {
    ScheduleKind::kGPipe, ScheduleKind::k1F1B, ScheduleKind::kInterleaved,
    ScheduleKind::kZeroBubbleH1, ScheduleKind::kZeroBubbleV};

namespace detail {
inline constexpr std::array<std::string_view, kScheduleKinds.size()> kScheduleNames{
    "gpipe", "1f1b", "interleaved", "zb-h1", "zb-v"};
}  // namespace detail

// Returns the name that the config uses for KIND.
[[nodiscard]] constexpr std::string_view schedule_name(ScheduleKind kind) {
    return detail::kScheduleNames[static_cast<size_t>(kind)];
}

// Returns the kind with that exact name, or nothing.
[[nodiscard]] constexpr std::optional<ScheduleKind> schedule_named(std::string_view name) {
    for (const ScheduleKind kind : kScheduleKinds)
        if (schedule_name(kind) == name) return kind;
    return std::nullopt;
}

// Returns true if the backward passes for inputs and for weights are separate pieces of work.
[[nodiscard]] constexpr bool splits_backward(ScheduleKind kind) {
    return kind == ScheduleKind::kZeroBubbleH1 || kind == ScheduleKind::kZeroBubbleV;
}

}  // namespace dslaunch
