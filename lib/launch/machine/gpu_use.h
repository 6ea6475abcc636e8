// The GPUs of a machine and the processes of every user that use them, without any CUDA library.
// Sources: device nodes, `nvidia-smi` (all processes of the machine, with their memory), /proc
// (this user's processes that have a device open). No state.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace dslaunch::launch {

inline constexpr const char* kGpuDevicePattern = "/dev/nvidia0, /dev/nvidia1, …";

// Counts the device nodes nvidiaN in DIRECTORY. A container has only its own device nodes, while
// the driver's list in /proc contains all GPUs of the host. Returns 0 if the folder cannot be read.
[[nodiscard]] int64_t count_gpus(const std::string& directory = "/dev");

// One GPU and its state. UNITS: bytes; -1: not known.
struct Gpu {
    int64_t index = 0;  // as nvidia-smi and CUDA_VISIBLE_DEVICES count, by PCI address
    std::string name = {};
    int64_t memory_bytes = -1;
    int64_t used_bytes = -1;
    std::string uuid = {};
    std::string driver = {};  // the driver's version, such as 580.65.06
    int64_t ecc_errors = -1;  // errors that ECC could not correct, since the driver was loaded
    // The GPU's links: the largest PCIe generation, the PCIe lanes in use and their maximum, and
    // the NVLinks that are up.
    int64_t pcie_generation = -1;
    int64_t pcie_lanes = -1;
    int64_t pcie_lanes_max = -1;
    int64_t nvlinks = -1;

    bool operator==(const Gpu&) const = default;
};

// A process that uses a GPU. UNITS: bytes of the GPU's memory; -1: not known.
struct GpuHold {
    int64_t gpu = 0;  // Gpu::index
    int64_t pid = 0;
    int64_t bytes = -1;

    bool operator==(const GpuHold&) const = default;
};

// The GPUs of this machine and their users.
struct GpuUse {
    std::vector<Gpu> gpus;
    std::vector<GpuHold> holds;  // by GPU, then by process
    std::string note;            // the facts that are missing, and why; empty: no fact is missing

    bool operator==(const GpuUse&) const = default;
};

// Returns "18 NVLinks", "PCIe 5 x16" or "PCIe 4 x8 of x16"; empty: not known.
[[nodiscard]] std::string link_text(const Gpu& gpu);
// Returns why a GPU is unfit for a job, and what to do; empty: no fault is known.
[[nodiscard]] std::string fault_of(const Gpu& gpu);

// Returns "140.4 GiB, 2.00 GiB in use, driver 580.65.06, 0 ECC errors, 18 NVLinks, also held by
// process 12 (1.00 GiB)" for the GPU with NAME, an index or the beginning of a UUID; empty if USE
// has no such GPU. Leaves out process OWN_PID.
[[nodiscard]] std::string facts_of_gpu(const GpuUse& use, std::string_view name, int64_t own_pid);

// Asks nvidia-smi and /proc. Blocks for 0.2 s, at most 20 s if the driver hangs. Never throws.
[[nodiscard]] GpuUse look_at_gpus();

// Returns the numbers N of the devices /dev/nvidiaN that process PID has open; empty if this user
// may not see them.
[[nodiscard]] std::set<int64_t> open_gpus(pid_t pid);

// Parses the output of two commands. GPUS: `nvidia-smi --query-gpu=index,uuid,name,memory.total,
// memory.used`. PROCESSES: `nvidia-smi --query-compute-apps=gpu_uuid,pid,used_memory`. Both have
// --format=csv,noheader,nounits (MiB). Skips lines of another form.
[[nodiscard]] GpuUse parse_gpu_use(std::string_view gpus, std::string_view processes);

// Adds the facts in FACTS and LINKS to GPUS. FACTS: `nvidia-smi --query-gpu=index,driver_version,
// ecc.errors.uncorrected.volatile.total,pcie.link.gen.max,pcie.link.width.current,
// pcie.link.width.max` with --format=csv,noheader,nounits; LINKS: `nvidia-smi nvlink --status`.
// Lines of another form, and fields that are not numbers, are skipped.
void add_gpu_facts(std::vector<Gpu>& gpus, std::string_view facts, std::string_view links);

}  // namespace dslaunch::launch
