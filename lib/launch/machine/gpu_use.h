// The GPUs of a machine and the processes that hold them, of every user, without any CUDA library.
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

// Device nodes nvidiaN below DIRECTORY: a container shows those it was given, the driver's own list
// in /proc all of the host's. 0 when the folder cannot be read.
[[nodiscard]] int64_t count_gpus(const std::string& directory = "/dev");

// UNITS: bytes; -1: not known.
struct Gpu {
    int64_t index = 0;  // as nvidia-smi and CUDA_VISIBLE_DEVICES count, by PCI address
    std::string name = {};
    int64_t memory_bytes = -1;
    int64_t used_bytes = -1;
    std::string uuid = {};
    std::string driver = {};  // its version, as 580.65.06
    int64_t ecc_errors = -1;  // that ECC could not correct since the driver was loaded
    // Its links: the largest generation and the lanes of PCIe, as they are and at most, and the
    // NVLinks that are up.
    int64_t pcie_generation = -1;
    int64_t pcie_lanes = -1;
    int64_t pcie_lanes_max = -1;
    int64_t nvlinks = -1;

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

// "18 NVLinks", "PCIe 5 x16", "PCIe 4 x8 of x16"; empty: not known.
[[nodiscard]] std::string link_text(const Gpu& gpu);
// Says why a GPU is unfit for a job, and what to do; empty: nothing is known against it.
[[nodiscard]] std::string fault_of(const Gpu& gpu);

// "140.4 GiB, 2.00 GiB in use, driver 580.65.06, 0 ECC errors, 18 NVLinks, also held by process 12
// (1.00 GiB)" of the GPU that NAME says, an index or a UUID or how that begins; empty: USE has
// none. OWN_PID's hold is not told.
[[nodiscard]] std::string facts_of_gpu(const GpuUse& use, std::string_view name, int64_t own_pid);

// Blocks for some 0.2 s, at most 20 s if the driver hangs. Never throws.
[[nodiscard]] GpuUse look_at_gpus();

// Returns the numbers N of the devices /dev/nvidiaN that process PID has open; empty if this user
// may not look into it.
[[nodiscard]] std::set<int64_t> open_gpus(pid_t pid);

// GPUS: `nvidia-smi --query-gpu=index,uuid,name,memory.total,memory.used`; PROCESSES: `nvidia-smi
// --query-compute-apps=gpu_uuid,pid,used_memory`; both with --format=csv,noheader,nounits (MiB).
// Lines of another form are passed over.
[[nodiscard]] GpuUse parse_gpu_use(std::string_view gpus, std::string_view processes);

// Adds what FACTS and LINKS say of GPUS. FACTS: `nvidia-smi --query-gpu=index,driver_version,
// ecc.errors.uncorrected.volatile.total,pcie.link.gen.max,pcie.link.width.current,
// pcie.link.width.max` in that format; LINKS: `nvidia-smi nvlink --status`. Lines of another form,
// and fields that are no numbers, are passed over.
void add_gpu_facts(std::vector<Gpu>& gpus, std::string_view facts, std::string_view links);

}  // namespace dslaunch::launch
