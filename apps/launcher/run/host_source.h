// Where the hosts of a job come from when it is no hostfile alone: Slurm's allocation, agents that
// come by themselves, this machine. Options and environment -> hosts with their slots; no host is
// contacted.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "launch/hosts/hostfile.h"
#include "launch/hosts/slurm_allocation.h"
#include "launch/transport/join/join_client.h"
#include "launcher/run/build_job.h"
#include "launcher/run/run_options.h"

namespace dslaunch::launcher {

enum class HostSource {
    kThisMachine,
    kHostfile,  // --hostfile, or deepspeed's default one
    kSlurm,     // the allocation that dslaunch runs in
    kMpi,       // copies of dslaunch that mpirun started
    kJoin,      // --launcher join and --no_ssh: agents come; with a hostfile they are its hosts
};

// Throws Error{kUsage} for options that contradict each other or lack what they need.
[[nodiscard]] HostSource choose_host_source(const RunOptions& options, const Machine& machine);

// srun has started this process besides another one that launches the job: it ends at once.
[[nodiscard]] bool is_other_copy(const RunOptions& options, const Machine& machine);

// The allocation's hosts; NOTES gets what was decided. REQUIRES: source kSlurm.
[[nodiscard]] std::vector<launch::Host> slurm_hosts(const RunOptions& options,
                                                    const Machine& machine,
                                                    std::vector<std::string>& notes);

// node0, node1, … as --nnodes and --num_gpus say. REQUIRES: source kJoin, no hostfile.
[[nodiscard]] std::vector<launch::Host> joining_hosts(const RunOptions& options,
                                                      std::vector<std::string>& notes);

// Where a job of source kJoin waits for its agents: HOST:PORT.
[[nodiscard]] std::string listen_text(const RunOptions& options);

// `--no_ssh --node_rank 1…`: this machine's agent, which joins node 0. Nothing for any other
// command line.
[[nodiscard]] std::optional<launch::JoinRequest> agent_by_hand(const RunOptions& options);

}  // namespace dslaunch::launcher
