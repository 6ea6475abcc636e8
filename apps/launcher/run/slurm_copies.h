// `srun --ntasks-per-node=1 dslaunch TARGET`, and `srun -N1 -n1 -w NODE dslaunch --node_rank N …`
// for each node: Slurm starts copies of dslaunch. One launches the job on all hosts, the others
// wait on theirs for its end: `srun --wait` kills a step soon after its first task has ended.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "launcher/run/machine.h"
#include "launcher/run/run_options.h"

namespace dslaunch::launcher {

class SlurmCopy {
  public:
    // Nothing: this process is the only one that srun started with this command, or its hosts do
    // not come from Slurm. Throws what choose_host_source() and find_slurm_allocation() throw.
    [[nodiscard]] static std::optional<SlurmCopy> find(const RunOptions& options,
                                                       const Machine& machine);

    [[nodiscard]] bool launches() const { return launches_; }
    // The name that the launcher and its agents hold (JobSpec::held_name).
    [[nodiscard]] const std::string& held_name() const { return held_name_; }
    // The copy that launches, in words: "task 0 of this step".
    [[nodiscard]] const std::string& launcher() const { return launcher_; }
    // One copy of each node says that it waits.
    [[nodiscard]] bool speaks() const { return speaks_; }
    // Waits for the end of the job. Returns the exit code, 0: the launcher's own tells how the job
    // has ended. REQUIRES: !launches(); end signals are held back.
    [[nodiscard]] int wait(const RunOptions& options) const;

  private:
    bool launches_ = false;
    bool speaks_ = false;
    std::string held_name_;
    std::string launcher_;
};

}  // namespace dslaunch::launcher
