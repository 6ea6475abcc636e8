// The places of a rank's optimizer states and parameters while they are not used:
// zero_optimization.offload_optimizer, offload_param, aio and dslaunch.offload. Part of the run
// config. No threads: a value type.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/kinds/eviction_rule.h"

namespace dslaunch::config {

enum class OffloadDevice { kNone, kCpu, kNvme };
enum class OffloadEngine { kAuto, kIoUring, kThreads };
enum class MomentFormat { kFp32, kBf16, kInt8 };

// The form of the disk tier's requests. A 0 stands for the number that `dslaunch io-bench` stored
// for the disk, else for the engine's own default.
struct AioConfig {
    int64_t block_bytes = 0;  // one request's bytes, a multiple of 4 KiB
    int64_t queue_depth = 0;  // requests in flight
    int64_t threads = 0;      // the thread engine's threads for each direction

    bool operator==(const AioConfig&) const = default;
};

struct OffloadConfig {
    // Moments, master copies and reduced gradients; ZeRO stages 1 to 3.
    OffloadDevice optimizer = OffloadDevice::kNone;
    OffloadDevice parameters = OffloadDevice::kNone;  // stage 3
    // Folders, one on each disk, striped when several; none unless on_disk().
    std::vector<std::string> nvme_paths;
    int64_t chunk_numel = 0;  // updated at once; 0: the plan chooses; at most sub_group_numel
    int64_t sub_group_numel = 1'000'000'000;
    int64_t optimizer_buffer_count = 4;  // chunks in memory at once while they pass, at least 2
    EvictionRule eviction = EvictionRule::kFifo;  // of those buffers
    double optimizer_ratio = 1.0;  // part of the optimizer states on disk; the rest stays in memory
    // The most elements of its offloaded parameters that a rank keeps in memory all the same.
    int64_t parameters_in_memory_numel = 0;
    // The number of chunks in memory is chosen between steps, by measurements; at the start
    // optimizer_ratio leaves it.
    bool adaptive = false;
    bool pin_memory = true;  // buffers of the disk tier are registered with the kernel
    AioConfig aio;
    OffloadEngine engine = OffloadEngine::kAuto;
    // The moments have this form on disk only; the optimizer computes in fp32. Anything but fp32
    // changes the run: a moment comes back rounded, by up to 1/128 of itself or of its block's
    // largest.
    MomentFormat moments = MomentFormat::kFp32;
    // Bytes that are not rounded go through zstd: no bit changes, and there are fewer bytes for
    // processor time.
    bool lossless = false;

    [[nodiscard]] bool on_disk() const {
        return optimizer == OffloadDevice::kNvme || parameters == OffloadDevice::kNvme;
    }
    bool operator==(const OffloadConfig&) const = default;
};

}  // namespace dslaunch::config
