// The sources of a job's hosts beside a hostfile: Slurm's allocation, agents that connect by
// themselves, this machine. Data path: options, environment -> [here] -> hosts with their slots. No
// host is contacted.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "launch/hosts/hostfile.h"
#include "launch/hosts/slurm_allocation.h"
#include "launch/transport/join/join_client.h"
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

// Throws Error{kUsage} for options that contradict each other or lack what they need.
[[nodiscard]] HostSource choose_host_source(const RunOptions& options, const Machine& machine);

// The allocation as Slurm tells it. REQUIRES: the source is kSlurm.
[[nodiscard]] launch::SlurmAllocation slurm_allocation(const RunOptions& options,
                                                       const Machine& machine);

// The allocation's hosts; NOTES gets the choices made. REQUIRES: the source is kSlurm.
[[nodiscard]] std::vector<launch::Host> slurm_hosts(const RunOptions& options,
                                                    const Machine& machine,
                                                    std::vector<std::string>& notes);

// True: NAME is one of HOSTS, and not the first.
[[nodiscard]] bool is_later_host(const std::vector<launch::HostSlots>& hosts,
                                 const std::string& name);

// The hosts node0, node1, … by --nnodes and --num_gpus. REQUIRES: the source is kJoin, without
// hostfile.
[[nodiscard]] std::vector<launch::Host> joining_hosts(const RunOptions& options,
                                                      std::vector<std::string>& notes);

// The address at which a job of source kJoin waits for its agents: HOST:PORT.
[[nodiscard]] std::string listen_text(const RunOptions& options);

// Settles torchrun's form, where every node runs the same command and all meet at one endpoint:
// --nnodes N and --rdzv_endpoint or --master_addr, without hosts that this command could start. It
// is --no_ssh; node 0 is the one that has the endpoint's address, or --node_rank says.
void settle_meeting(RunOptions& options, const Machine& machine);

// For `--no_ssh --node_rank 1…` the request of this machine's agent, which joins node 0; nullopt
// for any other command line.
[[nodiscard]] std::optional<launch::JoinRequest> agent_by_hand(const RunOptions& options);

// Applies RunOptions::host_list and left_out_list to the HOSTS of a hostfile; without one the list
// itself is the hosts, one worker each. Throws Error{kUsage}: a name that the hostfile has not, or
// that is no host's.
[[nodiscard]] std::vector<launch::Host> listed_hosts(const RunOptions& options,
                                                     std::vector<launch::Host> hosts);

}  // namespace dslaunch::launcher
