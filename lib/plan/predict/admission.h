// The admission of a job to a host, before its memory is taken: the need of the host's ranks by
// their plans, by tier, beside the limits. Data path: step plans, limits
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

// The largest need of one host's ranks.
struct HostNeed {
    int ranks = 1;
    Bytes private_total;  // private memory that the plans count, of all ranks
    Bytes private_max;    // private memory of the rank that needs most
    Bytes resident_max;   // own memory and touched parts of the arena, of the rank that has most
    Bytes arena;          // shared by the ranks
    Bytes disk;           // offload files of all ranks
    Bytes device;         // memory of its GPU, of the rank that needs most; 0: no rank has one
    Bytes program;        // memory of one rank that its plan does not count
    Bytes code;           // code of the program and its libraries, part of a rank's resident set

    // Returns the host's need, with the programs themselves and kProgramRoom for each, but without
    // their code, which the system gives back and reads again like other files.
    [[nodiscard]] Bytes of_host() const;
    // Returns the need of the rank that needs most, counted like its resident set: with all that it
    // shares, and without kProgramRoom.
    [[nodiscard]] Bytes of_rank() const;
};

// Memory that a rank's program takes after the trial run: threads and their stacks, connections.
inline constexpr Bytes kProgramLater = mib(2);
// Room that admission leaves each rank besides: gaps of the heap, memory of other machines'
// libraries.
inline constexpr Bytes kProgramRoom = mib(6);
// Stacks of threads started later, the savers' among them, which limits of a process count though
// nobody touches them: four of 8 MiB (`ulimit -s`).
inline constexpr Bytes kProgramStacks = mib(32);
// Code that the trial run did not reach: optimizer, communication, saving.
inline constexpr Bytes kCodeLater = mib(1);

// Workspaces that LibTorch takes on a GPU beside tensors: cuBLAS's of a stream (32 MiB on sm_90,
// 8 MiB before) and cuBLASLt's (1 MiB), once for the compute lane and once for autograd's thread.
inline constexpr Bytes kDeviceWorkspaces = mib(66);
// The rest in blocks that LibTorch's allocator takes from the GPU: 2 MiB each, or 20 MiB for
// tensors between 1 and 10 MiB.
inline constexpr Bytes kDeviceBlocks = mib(24);
// Buffers of NCCL for a group of GPUs, at most, if its ranks form a ring: buffers of its three
// protocols (4 MiB, 4.7 MiB, 0.5 MiB) on each of 32 channels. Source: NCCL 2.28's defaults.
inline constexpr Bytes kDeviceGroup = mib(296);

// Returns what NCCL keeps on a GPU for the groups that a rank with OPTIONS is in.
[[nodiscard]] Bytes group_memory(const StepPlanOptions& options);
// Returns the memory of a GPU that a job with OPTIONS takes beside what its plan counts: LibTorch's
// and NCCL's. REQUIRES: OPTIONS.on_device.
[[nodiscard]] Bytes device_extra(const StepPlanOptions& options);

// Returns the need of a host with PLANS, its ranks' plans. ARENA is the whole arena; each rank
// touches all of it. PROGRAM is a rank's memory after the trial run of its model, EXTRA the need of
// its GPU beside the plan. REQUIRES: at least one plan.
[[nodiscard]] HostNeed host_need(std::span<const StepPlan> plans, Bytes arena,
                                 const ProgramMemory& program, Bytes extra = {});

// The memory of a GPU that a rank may take.
struct DeviceRoom {
    Bytes left;
    std::string limited_by;  // "NVIDIA H200, 139.8 GiB, others hold 0.5 GiB"
};

struct HostLimits {
    MemoryState memory;           // state that one process sees
    int processes = 1;            // processes that hold memory.held each and are part of the need
    std::vector<DiskRoom> disks;  // files are striped over them equally; empty: not known
    std::optional<DeviceRoom> device = {};
};

// The need of one tier beside the limit that is hit first.
struct TierVerdict {
    enum class Tier { kHostMemory, kRankMemory, kDisk, kDevice };
    Tier tier = Tier::kHostMemory;
    std::string name;  // "memory", "address space of a rank", "disk /a"
    Bytes need;
    std::optional<Bytes> limit;  // nullopt: no limit is known
    std::string limited_by;

    [[nodiscard]] bool fits() const { return !limit || need <= *limit; }
};

// Returns the verdicts on the host's memory; then on a rank's, if it has limits of its own; then,
// if disk is needed, on the folders, together if they lie on one disk; then on a rank's GPU.
[[nodiscard]] std::vector<TierVerdict> admit(const HostNeed& need, const HostLimits& limits);
[[nodiscard]] bool all_fit(std::span<const TierVerdict> verdicts);

// Returns a line for each tier with its need, its limit and the limit's name.
[[nodiscard]] std::string admission_table(const HostNeed& need,
                                          std::span<const TierVerdict> verdicts);
// Returns "202.2 MiB of 22.34 GiB (MemAvailable of /proc/meminfo) for the 2 ranks of a host; …".
[[nodiscard]] std::string admission_text(const HostNeed& need,
                                         std::span<const TierVerdict> verdicts);
// Writes {"ranks", "fits", "private_bytes", "arena_bytes", "program_bytes", "disk_bytes", "tiers":
// [{"tier", "need_bytes", "limit_bytes", "limited_by", "fits"}]}, left open for more fields.
void begin_admission_json(const HostNeed& need, std::span<const TierVerdict> verdicts,
                          JsonWriter& json);

// Throws Error{kSetup} if memory is too small, else Error{kDisk} if a disk is, with the numbers and
// ADVICE, a sentence.
void require_admission(const HostNeed& need, std::span<const TierVerdict> verdicts,
                       const std::string& advice);

// Returns "memory of a rank: 512.0 MiB estimated, 498.0 MiB measured at most, 0.97 of it". MEASURED
// is the largest measure of any rank; WHAT is "a rank" or "a GPU".
[[nodiscard]] std::string estimate_text(std::string_view what, Bytes estimated, Bytes measured);

}  // namespace dslaunch::plan
