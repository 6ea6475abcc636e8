// The allocation that this process runs in, as Slurm tells it: environment variables -> hosts and
// slots, another source of the launch plan beside the hostfile. Pure; no threads.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launch/hosts/hostfile.h"
#include "launch/process/environment_list.h"

namespace dslaunch::launch {

struct SlurmAllocation {
    std::string job_id;
    std::vector<Host> hosts;  // in Slurm's order; slots as below
    // The source of the slots: GPUs per host where Slurm names them, else the tasks that were asked
    // for, else 1 each.
    enum class Slots { kGpus, kTasks, kUnknown };
    Slots slots = Slots::kUnknown;
    // srun started this program several times (a step of more than one task) and this is not the
    // first: hosts and slots are that step's.
    bool is_other_copy = false;
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
