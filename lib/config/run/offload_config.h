// The places where a rank's optimizer states and parameters are kept while they are not used:
// zero_optimization.offload_optimizer, offload_param, aio and dslaunch.offload. Part of the run
// config. No threads: a value type.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/kinds/eviction_rule.h"

namespace dslaunch::config {

// kNone: values stay where they are used. kCpu: in CPU memory. kNvme: on disks.
enum class OffloadDevice { kNone, kCpu, kNvme };
// The way in which the disk tier makes its requests. kAuto means io_uring, or threads if io_uring
// is missing.
enum class OffloadEngine { kAuto, kIoUring, kThreads };
// The form in which an optimizer's moments are stored.
enum class MomentFormat { kFp32, kBf16, kInt8 };

// The settings of requests to the disks. A 0 stands for the number that `dslaunch io-bench` stored
// for the disk. If io-bench stored no number, the engine's default is used.
struct AioConfig {
    int64_t block_bytes = 0;  // one request's bytes, a multiple of 4 KiB
    int64_t queue_depth = 0;  // requests in flight
    int64_t threads = 0;      // threads of the thread engine for each direction

    bool operator==(const AioConfig&) const = default;
};

// The places of a rank's values, and the parts in which they move.
struct OffloadConfig {
    // The place of moments, master copies and reduced gradients, at ZeRO stages 1 to 3.
    OffloadDevice optimizer = OffloadDevice::kNone;
    OffloadDevice parameters = OffloadDevice::kNone;  // stage 3
    // Folders, one on each disk; data is striped over them if there are several. Empty unless
    // on_disk().
    std::vector<std::string> nvme_paths;
    int64_t chunk_numel = 0;  // elements updated at once, at most sub_group_numel; 0 if the plan
                              // chooses it
    int64_t sub_group_numel = 1'000'000'000;
    int64_t optimizer_buffer_count = 4;           // buffers that chunks pass through, at least 2
    EvictionRule eviction = EvictionRule::kFifo;  // selects the chunk that loses its buffer
    double optimizer_ratio = 1.0;  // part of the optimizer states on disk; the rest stays in memory
    // A rank keeps at most this many elements of its offloaded parameters in memory.
    int64_t parameters_in_memory_numel = 0;
    // If true, the number of chunks in memory changes between steps, according to measurements. The
    // first number is the one for optimizer_ratio.
    bool adaptive = false;
    bool pin_memory = true;  // buffers of the disk tier are registered with the kernel
    AioConfig aio;
    OffloadEngine engine = OffloadEngine::kAuto;
    // The format of the moments on disk; the optimizer computes in fp32. Any other format than fp32
    // changes the results of the run, because moments are rounded when they are written. The error
    // is up to 1/128 of the moment (bf16) or of the largest moment in its block (8 bits).
    MomentFormat moments = MomentFormat::kFp32;
    // If true, values that are stored without rounding are compressed with zstd. This keeps all
    // bits, costs processor time and saves bytes on disk.
    bool lossless = false;

    // Returns true if any values are kept on disks.
    [[nodiscard]] bool on_disk() const {
        return optimizer == OffloadDevice::kNvme || parameters == OffloadDevice::kNvme;
    }
    bool operator==(const OffloadConfig&) const = default;
};

}  // namespace dslaunch::config
