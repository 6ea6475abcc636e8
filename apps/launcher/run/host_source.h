// Finds a job's hosts outside a hostfile: Slurm's allocation, agents that connect by themselves,
// this machine. Data path: options, environment -> [here] -> hosts with their slots. No host is
// contacted.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "launch/hosts/hostfile.h"
#include "launch/hosts/slurm_allocation.h"
#include "launch/transport/join/join_handshake.h"
#include "launcher/run/machine.h"
#include "launcher/run/run_options.h"

namespace dslaunch::launcher {

enum class HostSource {
    kThisMachine,
    kHostfile,  // --hostfile, or deepspeed's default one
    kSlurm,     // the allocation that dslaunch runs in
    kMpi,       // copies of dslaunch that mpirun started
    kJoin,      // --launcher join and --no_ssh: agents connect; with a hostfile from its hosts
};

// Chooses the source. Throws Error{kUsage} for contradictory or incomplete options.
[[nodiscard]] HostSource choose_host_source(const RunOptions& options, const Machine& machine);

// Returns the allocation as Slurm tells it. REQUIRES: the source is kSlurm.
[[nodiscard]] launch::SlurmAllocation slurm_allocation(const RunOptions& options,
                                                       const Machine& machine);

// Returns the allocation's hosts; NOTES gets the choices made. REQUIRES: the source is kSlurm.
[[nodiscard]] std::vector<launch::Host> slurm_hosts(const RunOptions& options,
                                                    const Machine& machine,
                                                    std::vector<std::string>& notes);

// Returns true if NAME is one of HOSTS, and not the first.
[[nodiscard]] bool is_later_host(const std::vector<launch::HostSlots>& hosts,
                                 const std::string& name);

// Returns the hosts node0, node1, … by --nnodes and --num_gpus. REQUIRES: the source is kJoin,
// without hostfile.
[[nodiscard]] std::vector<launch::Host> joining_hosts(const RunOptions& options,
                                                      std::vector<std::string>& notes);

// Returns the address at which a job of source kJoin waits for its agents: HOST:PORT.
[[nodiscard]] std::string listen_text(const RunOptions& options);

// Settles torchrun's form: every node runs the same command, and all meet at one endpoint (--nnodes
// N and --rdzv_endpoint or --master_addr) without hosts that this command could start. It becomes
// --no_ssh; node 0 has the endpoint's address, or --node_rank says.
void settle_meeting(RunOptions& options, const Machine& machine);

// Returns, for `--no_ssh --node_rank 1…`, the request of this machine's agent, which joins node 0;
// nullopt for any other command line.
[[nodiscard]] std::optional<launch::JoinRequest> agent_by_hand(const RunOptions& options);

// Applies RunOptions::host_list and left_out_list to the HOSTS of a hostfile; without one the list
// itself gives the hosts, one worker each. Throws Error{kUsage}: a name that is not in the
// hostfile, or not a host's.
[[nodiscard]] std::vector<launch::Host> listed_hosts(const RunOptions& options,
                                                     std::vector<launch::Host> hosts);

// A copy of dslaunch that Slurm starts: `srun --ntasks-per-node=1 dslaunch TARGET`, or `srun -N1
// -n1 -w NODE dslaunch --node_rank N …` for each node. One launches the job on all hosts, the
// others wait on theirs for its end: `srun --wait` kills a step soon after its first task's end.
class SlurmCopy {
  public:
    // Finds this process among copies. Nothing: srun started no other with this command, or its
    // hosts are not Slurm's. Throws as choose_host_source() and find_slurm_allocation().
    [[nodiscard]] static std::optional<SlurmCopy> find(const RunOptions& options,
                                                       const Machine& machine);

    [[nodiscard]] bool launches() const { return launches_; }
    // Returns the name that the launcher and its agents hold (JobSpec::held_name).
    [[nodiscard]] const std::string& held_name() const { return held_name_; }
    // Returns the copy that launches, in words: "task 0 of this step".
    [[nodiscard]] const std::string& launcher() const { return launcher_; }
    // Returns true for the one copy of each node that says that it waits.
    [[nodiscard]] bool speaks() const { return speaks_; }
    // Waits for the end of the job. Returns the exit code, 0: the launcher's own code reports the
    // job's end. REQUIRES: !launches(); end signals are held back.
    [[nodiscard]] int wait(const RunOptions& options) const;

  private:
    bool launches_ = false;
    bool speaks_ = false;
    std::string held_name_;
    std::string launcher_;
};

}  // namespace dslaunch::launcher
