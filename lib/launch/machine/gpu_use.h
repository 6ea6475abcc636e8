// The GPUs of a machine and the processes that hold them, of every user. Sources: `nvidia-smi` (all
// processes of the machine, with their memory), /proc (this user's processes that have a device
// open). No state.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace dslaunch::launch {

// UNITS: bytes; -1: not known.
struct Gpu {
    int64_t index = 0;  // as nvidia-smi and CUDA_VISIBLE_DEVICES count, by PCI address
    std::string name;
    int64_t memory_bytes = -1;
    int64_t used_bytes = -1;

    bool operator==(const Gpu&) const = default;
};

struct GpuHold {
    int64_t gpu = 0;  // Gpu::index
    int64_t pid = 0;
    int64_t bytes = -1;

    bool operator==(const GpuHold&) const = default;
};

struct GpuUse {
    std::vector<Gpu> gpus;
    std::vector<GpuHold> holds;  // by GPU, then by process
    std::string note;            // what could not be found out and why; empty: nothing

    bool operator==(const GpuUse&) const = default;
};

// Blocks for some 0.1 s, at most 10 s if the driver hangs. Never throws.
[[nodiscard]] GpuUse look_at_gpus();

// Returns the numbers N of the devices /dev/nvidiaN that process PID has open; empty if this user
// may not look into it.
[[nodiscard]] std::set<int64_t> open_gpus(pid_t pid);

// GPUS: `nvidia-smi --query-gpu=index,uuid,name,memory.total,memory.used`; PROCESSES: `nvidia-smi
// --query-compute-apps=gpu_uuid,pid,used_memory`; both with --format=csv,noheader,nounits (MiB).
// Lines of another form are passed over.
[[nodiscard]] GpuUse parse_gpu_use(std::string_view gpus, std::string_view processes);

}  // namespace dslaunch::launch
