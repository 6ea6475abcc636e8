// The Slurm allocation that this process runs in: environment variables -> hosts and slots. It is
// the alternative to the hostfile as a source of the launch plan. Pure; no threads.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launch/hosts/hostfile.h"
#include "launch/process/spawn.h"

namespace dslaunch::launch {

// The srun step in which this process is a task.
struct SlurmStep {
    std::string id;
    int64_t tasks = 1;
    int64_t task = 0;        // number of this task
    int64_t local_task = 0;  // its number on its node
    int64_t nodes = 1;
};

// The hosts that Slurm has given to a job.
struct SlurmAllocation {
    std::string job_id;
    std::vector<Host> hosts;  // in Slurm's order; `slots` says where their slots come from
    // The source of the slots: the GPUs of each host if Slurm gives them, else the requested tasks,
    // else one slot for each host. The number of tasks only says how often srun starts a program;
    // there may be more workers.
    enum class Slots { kGpus, kTasks, kUnknown };
    Slots slots = Slots::kUnknown;
    // Empty if this process was not started by srun, for example in the shell of sbatch or salloc.
    // If the step has several tasks, `hosts` contains only the hosts and slots of the step.
    // Otherwise it contains all hosts and slots of the allocation.
    std::optional<SlurmStep> step;
};

// Returns a1s a2s a3s a07s a08s a09s b02 for "a[1-3,07-09]s,b02". Throws Error{kUsage}, naming
// column and cause, for an unclosed bracket, a reversed range, a range of more than kRangeHostsMax
// names, more than kHostsMax hosts, or text that is not a name.
[[nodiscard]] std::vector<std::string> expand_nodelist(std::string_view text);

// Returns 2 2 2 1 for "2(x3),1". Throws Error{kUsage}.
[[nodiscard]] std::vector<int> expand_task_counts(std::string_view text);

// Returns the number of GPUs in "8", "a100:8", "a100:4,h100:2", or a list of GPU numbers "0,2-3".
// Returns nothing for other text.
[[nodiscard]] std::optional<int> count_slurm_gpus(std::string_view text);

// Returns the allocation in ENVIRONMENT, or nothing. If WITH_GPUS is false, GPUs are ignored.
// Throws Error{kUsage} if Slurm's variables contradict each other or cannot be read.
[[nodiscard]] std::optional<SlurmAllocation> find_slurm_allocation(
    const EnvironmentList& environment, bool with_gpus);

}  // namespace dslaunch::launch
