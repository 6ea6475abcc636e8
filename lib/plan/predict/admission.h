// The admission of a job to a host before its memory is taken: compares the memory that the plans
// of the host's ranks need, in each tier, with the limits. Data path: step plans, limits
// (base/machine/memory_limits.h, base/machine/disk_room.h) -> admission -> arena;
// plan/choose/memory_choice.h searches for a choice that fits. Pure.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/machine/disk_room.h"
#include "base/machine/memory_limits.h"
#include "base/machine/program_memory.h"
#include "base/text/json.h"
#include "plan/step/step_plan.h"

namespace dslaunch::plan {

// The memory and the disk space that the ranks of one host need.
struct HostNeed {
    int ranks = 1;
    Bytes private_total;  // private memory of all ranks together, as far as plans count it
    Bytes private_max;    // private memory of the rank that needs most
    Bytes resident_max;   // largest sum of private memory and used arena of a rank
    Bytes arena;          // shared by the ranks
    Bytes disk;           // offload files of all ranks
    Bytes device;         // GPU memory of the rank that needs most; 0: there are no GPUs
    Bytes program;        // memory of one rank that its plan does not count
    Bytes code;           // code of the program and its libraries, part of a rank's resident set

    // Returns the memory that the host needs. It includes the program's memory and kProgramRoom for
    // each rank, but not the code, which the system can drop and read again like other files.
    [[nodiscard]] Bytes of_host() const;
    // Returns the memory of the rank that needs most, counted like its resident set: with all
    // shared memory and without kProgramRoom.
    [[nodiscard]] Bytes of_rank() const;
};

// Memory that a rank's program comes to use after the trial run: threads and their stacks,
// connections.
inline constexpr Bytes kProgramLater = mib(2);
// Further memory that admission reserves for each rank: gaps of the heap, and libraries that need
// more memory on other machines.
inline constexpr Bytes kProgramRoom = mib(6);
// The stacks of threads that are started later, such as the savers. The limits of a process count
// them although they are hardly used: four stacks of 8 MiB (`ulimit -s`).
inline constexpr Bytes kProgramStacks = mib(32);
// Code that the trial run does not execute: optimizer, communication, saving.
inline constexpr Bytes kCodeLater = mib(1);

// Workspaces that LibTorch allocates on a GPU in addition to tensors: one for cuBLAS (32 MiB on
// sm_90, 8 MiB before) and one for cuBLASLt (1 MiB), each for the stream of the compute lane and
// for the stream of autograd's thread.
inline constexpr Bytes kDeviceWorkspaces = mib(66);
// The unused rest of the blocks that LibTorch's allocator takes from the GPU: blocks of 2 MiB, or
// of 20 MiB for tensors between 1 and 10 MiB.
inline constexpr Bytes kDeviceBlocks = mib(24);
// The most memory that NCCL uses for a group of GPUs whose ranks form a ring: the buffers of its
// three protocols (4 MiB, 4.7 MiB, 0.5 MiB) on each of 32 channels. Source: NCCL 2.28's defaults.
inline constexpr Bytes kDeviceGroup = mib(296);

// Returns the memory that NCCL uses on a GPU for the groups of a rank with OPTIONS.
[[nodiscard]] Bytes group_memory(const StepPlanOptions& options);
// Returns the memory on a GPU that a job with OPTIONS needs in addition to its plan: the memory of
// LibTorch and of NCCL. REQUIRES: OPTIONS.on_device.
[[nodiscard]] Bytes device_extra(const StepPlanOptions& options);

// Returns the memory and disk that a host needs. PLANS are the plans of its ranks. ARENA is the
// size of the whole arena; each rank touches all of it. PROGRAM is the memory of a rank after the
// trial run of its model. EXTRA is the memory that a rank's GPU needs in addition to the plan.
// REQUIRES: at least one plan.
[[nodiscard]] HostNeed host_need(std::span<const StepPlan> plans, Bytes arena,
                                 const ProgramMemory& program, Bytes extra = {});

// The memory of a GPU that one rank may use.
struct DeviceRoom {
    Bytes left;
    std::string limited_by;  // "NVIDIA H200, 139.8 GiB, others hold 0.5 GiB"
};

// The memory and disk that are available to the ranks of a host.
struct HostLimits {
    MemoryState memory;           // the state as one process sees it
    int processes = 1;            // number of the job's processes that hold memory.held already
    std::vector<DiskRoom> disks;  // offload files are spread evenly over them; empty: not known
    std::optional<DeviceRoom> device = {};
};

// The need of one tier, and the limit on it that is reached first.
struct TierVerdict {
    // The memory or disk that a verdict is about.
    enum class Tier { kHostMemory, kRankMemory, kDisk, kDevice };
    Tier tier = Tier::kHostMemory;
    std::string name;  // "memory", "address space of a rank", "disk /a"
    Bytes need;
    std::optional<Bytes> limit;  // nullopt: no limit is known
    std::string limited_by;

    // Returns true if the need does not exceed the limit, or if no limit is known.
    [[nodiscard]] bool fits() const { return !limit || need <= *limit; }
};

// Returns verdicts, in this order: on the host's memory; on the memory of a rank, if a rank has
// separate limits; on the offload folders, if disk is needed (one verdict for all folders on the
// same disk); on the GPU of a rank.
[[nodiscard]] std::vector<TierVerdict> admit(const HostNeed& need, const HostLimits& limits);
// Returns true if every need fits.
[[nodiscard]] bool all_fit(std::span<const TierVerdict> verdicts);

// Returns a line for each tier with its need, its limit and the name of the limit.
[[nodiscard]] std::string admission_table(const HostNeed& need,
                                          std::span<const TierVerdict> verdicts);
// Returns "202.2 MiB of 22.34 GiB (MemAvailable of /proc/meminfo) for the 2 ranks of a host; …".
[[nodiscard]] std::string admission_text(const HostNeed& need,
                                         std::span<const TierVerdict> verdicts);
// Writes {"ranks", "fits", "private_bytes", "arena_bytes", "program_bytes", "disk_bytes",
// "device_bytes", "tiers": [{"tier", "need_bytes", "limit_bytes", "limited_by", "fits"}]}, but
// leaves the outer object open for more fields.
void begin_admission_json(const HostNeed& need, std::span<const TierVerdict> verdicts,
                          JsonWriter& json);

// Throws Error{kSetup} if memory is too small, otherwise Error{kDisk} if a disk is too small. The
// message contains the numbers and ADVICE, a sentence.
void require_admission(const HostNeed& need, std::span<const TierVerdict> verdicts,
                       const std::string& advice);

// Returns "memory of a rank: 512.0 MiB estimated, 498.0 MiB measured at most, 0.97 of it". MEASURED
// is the largest value that any rank measured. WHAT is "a rank" or "a GPU".
[[nodiscard]] std::string estimate_text(std::string_view what, Bytes estimated, Bytes measured);

}  // namespace dslaunch::plan
