#include "runtime/watch/memory_phases.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/bytes.h"
#include "runtime/watch/process_usage.h"

namespace dslaunch::runtime {

namespace {

int64_t device_bytes_in_use(DeviceBackend& device) {
    const DeviceMemoryState state = device.memory_state();
    return (state.total - state.left).value;
}

}  // namespace

MemoryPhases::Phase MemoryPhases::phase_of(plan::Op op) {
    switch (op) {
        case plan::Op::kForward:
            return Phase::kForward;
        case plan::Op::kRecompute:
        case plan::Op::kBackward:
        case plan::Op::kBackwardInput:
        case plan::Op::kBackwardWeight:
            return Phase::kBackward;
        case plan::Op::kNorm:
        case plan::Op::kUpdate:
        case plan::Op::kUpdateRest:
            return Phase::kUpdate;
        default:
            return Phase::kNone;
    }
}

void MemoryPhases::note(plan::Op op) {
    const Phase phase = phase_of(op);
    if (phase == Phase::kNone) return;
    const int64_t rss_bytes = process_usage().rss_bytes;
    const int64_t device_bytes = device_ == nullptr ? 0 : device_bytes_in_use(*device_);
    const std::lock_guard lock(mutex_);
    Sample& sample = samples_[static_cast<size_t>(phase)];
    sample.rss_bytes = rss_bytes;
    sample.rss_bytes_max = std::max(sample.rss_bytes_max, rss_bytes);
    sample.device_bytes = device_bytes;
    sample.is_there = true;
}

std::string MemoryPhases::take() {
    static constexpr std::array<const char*, kPhases> kNames = {"forward", "backward", "update"};
    const std::lock_guard lock(mutex_);
    std::string text;
    int64_t peak = process_usage().peak_rss_bytes;
    for (size_t phase = 0; phase < kPhases; ++phase) {
        const Sample& sample = samples_[phase];
        if (!sample.is_there) continue;
        peak = std::max(peak, sample.rss_bytes_max);  // the kernel notes its peak a little later
        text += fmt::format("{}{} {} (at most {})", text.empty() ? "" : ", ", kNames[phase],
                            to_text(Bytes{sample.rss_bytes}), to_text(Bytes{sample.rss_bytes_max}));
        if (device_ != nullptr)
            text += fmt::format(" and {} on the GPU", to_text(Bytes{sample.device_bytes}));
    }
    samples_ = {};
    text += fmt::format("; {} at most since the start", to_text(Bytes{peak}));
    if (device_ != nullptr)
        text += fmt::format(", on the GPU {}", to_text(device_->memory_state().peak));
    return text;
}

}  // namespace dslaunch::runtime
