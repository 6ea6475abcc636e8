// The allocation that this process runs in, as Slurm tells it: environment variables -> hosts and
// slots, another source of the launch plan beside the hostfile. Pure; no threads.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launch/hosts/hostfile.h"
#include "launch/process/spawn.h"

namespace dslaunch::launch {

// The step of srun that this process is a task of.
struct SlurmStep {
    std::string id;
    int64_t tasks = 1;
    int64_t task = 0;        // number of this one
    int64_t local_task = 0;  // its number on its node
    int64_t nodes = 1;
};

struct SlurmAllocation {
    std::string job_id;
    std::vector<Host> hosts;  // in Slurm's order; slots as below
    // The source of the slots: GPUs per host where Slurm names them, else the tasks that were asked
    // for, else 1 each. Tasks are how often srun starts a program, which workers may outnumber.
    enum class Slots { kGpus, kTasks, kUnknown };
    Slots slots = Slots::kUnknown;
    // Nothing: no srun has started this process, or a shell that sbatch or salloc gives. Hosts and
    // slots are those of a step of several tasks, else the whole allocation's.
    std::optional<SlurmStep> step;
};

// "a[1-3,07-09]s,b02" -> a1s a2s a3s a07s a08s a09s b02. Throws Error{kUsage} naming column and
// cause: a bracket without end, a reversed range, one over kRangeHostsMax, over kHostsMax hosts, a
// name that is none.
[[nodiscard]] std::vector<std::string> expand_nodelist(std::string_view text);

// "2(x3),1" -> 2 2 2 1. Throws Error{kUsage}.
[[nodiscard]] std::vector<int> expand_task_counts(std::string_view text);

// "8", "a100:8", "a100:4,h100:2", or a list of GPU numbers "0,2-3": how many. Nothing when it is
// none.
[[nodiscard]] std::optional<int> count_slurm_gpus(std::string_view text);

// The allocation that ENVIRONMENT describes, nothing outside of one. WITH_GPUS false: GPUs are not
// looked at. Throws Error{kUsage} when Slurm's variables contradict each other or cannot be read.
[[nodiscard]] std::optional<SlurmAllocation> find_slurm_allocation(
    const EnvironmentList& environment, bool with_gpus);

}  // namespace dslaunch::launch
