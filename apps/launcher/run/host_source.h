// Finds the hosts of a job that has no hostfile: Slurm's allocation, agents that connect by
// themselves, or this machine. Data path: options, environment -> [here] -> hosts with their slots.
// No host is contacted.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "launch/hosts/hostfile.h"
#include "launch/hosts/slurm_allocation.h"
#include "launch/transport/join/join_handshake.h"
#include "launcher/options/machine.h"
#include "launcher/options/run_options.h"

namespace dslaunch::launcher {

// The source of a job's hosts.
enum class HostSource {
    kThisMachine,
    kHostfile,  // --hostfile, or deepspeed's default hostfile
    kSlurm,     // the allocation that dslaunch runs in
    kMpi,       // copies of dslaunch that mpirun started
    kJoin,      // --launcher join, --no_ssh: agents connect by themselves
};

// Returns the source of the job's hosts. Throws Error{kUsage} for contradictory or incomplete
// options.
[[nodiscard]] HostSource choose_host_source(const RunOptions& options, const Machine& machine);

// Returns the allocation as Slurm's variables describe it. REQUIRES: the source is kSlurm.
[[nodiscard]] launch::SlurmAllocation slurm_allocation(const RunOptions& options,
                                                       const Machine& machine);

// Returns the allocation's hosts. Adds notes for the user about the hosts and their slots to NOTES.
// REQUIRES: the source is kSlurm.
[[nodiscard]] std::vector<launch::Host> slurm_hosts(const RunOptions& options,
                                                    const Machine& machine,
                                                    std::vector<std::string>& notes);

// Returns true if NAME is one of HOSTS other than the first.
[[nodiscard]] bool is_later_host(const std::vector<launch::HostSlots>& hosts,
                                 const std::string& name);

// Returns the hosts node0, node1, …, as many as --nnodes says, each with --num_gpus slots.
// REQUIRES: the source is kJoin, without a hostfile.
[[nodiscard]] std::vector<launch::Host> joining_hosts(const RunOptions& options,
                                                      std::vector<std::string>& notes);

// Returns the address at which a job with the source kJoin waits for its agents, as HOST:PORT.
[[nodiscard]] std::string listen_text(const RunOptions& options);

// Detects a command line in torchrun's form: every node runs the same command, all meet at one
// endpoint (--nnodes N and --rdzv_endpoint or --master_addr), and no option names hosts that this
// command could start. Such a command line is treated like --no_ssh. Node 0 is the node with
// --node_rank 0 or, without this option, the machine with the endpoint's address.
void settle_meeting(RunOptions& options, const Machine& machine);

// Returns the request with which this machine's agent joins node 0 of a `--no_ssh` job; nullopt if
// this machine is node 0, or if the job is of a different kind.
[[nodiscard]] std::optional<launch::JoinRequest> agent_by_hand(const RunOptions& options);

// Applies RunOptions::host_list and left_out_list to HOSTS, which come from a hostfile. Without a
// hostfile, host_list itself names the hosts, and each host has one worker. Throws Error{kUsage}
// for a name that is not in the hostfile or is not a valid host name.
[[nodiscard]] std::vector<launch::Host> listed_hosts(const RunOptions& options,
                                                     std::vector<launch::Host> hosts);

// One of several copies of dslaunch that Slurm starts: `srun --ntasks-per-node=1 dslaunch TARGET`,
// or `srun -N1 -n1 -w NODE dslaunch --node_rank N …` for each node. One copy launches the job on
// all hosts. Each other copy waits on its host until the job ends, because `srun --wait` kills a
// step soon after its first task has ended.
class SlurmCopy {
  public:
    // Returns this process as one of several copies. Returns nullopt if srun started only this
    // process with the command, or if the hosts do not come from Slurm. Throws the same errors as
    // choose_host_source() and find_slurm_allocation().
    [[nodiscard]] static std::optional<SlurmCopy> find(const RunOptions& options,
                                                       const Machine& machine);

    // Returns true if this copy launches the job.
    [[nodiscard]] bool launches() const { return launches_; }
    // Returns the name that the launcher and its agents hold while they run (JobSpec::held_name).
    [[nodiscard]] const std::string& held_name() const { return held_name_; }
    // Returns a phrase that names the copy that launches: "task 0 of this step".
    [[nodiscard]] const std::string& launcher() const { return launcher_; }
    // Returns true if this copy reports that it waits. One copy on each node does so.
    [[nodiscard]] bool speaks() const { return speaks_; }
    // Waits until the job ends. Returns 0, because the launching copy returns the job's exit code.
    // REQUIRES: !launches(); end signals are held back.
    [[nodiscard]] int wait(const RunOptions& options) const;

  private:
    bool launches_ = false;
    bool speaks_ = false;
    std::string held_name_;
    std::string launcher_;
};

}  // namespace dslaunch::launcher
