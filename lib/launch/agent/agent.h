// The agent: one per job and node, started by a transport as `dslaunch agent --stdio`. It starts
// the node's workers, forwards what they say, and ends all of them on request or when its input
// closes: a launcher that is gone, for whatever reason, takes its job along. One thread; it forks
// only from there.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <span>
#include <string>

#include "launch/agent/agent_worker.h"
#include "launch/machine/launcher_lease.h"
#include "launch/protocol/frame.h"
#include "launch/protocol/push_messages.h"
#include "launch/transport/join/join_channel.h"
#include "launch/transport/join/join_handshake.h"

namespace dslaunch::launch {

struct AgentSettings {
    // The address at which the launcher reached this machine, for a way that does not say it;
    // empty: sshd's word counts.
    std::string arrival_address;
    // True: passes a signal from outside (a scheduler that ends the job, a pod that is removed) to
    // the launcher, which lets the ranks save; only a second signal ends the workers here.
    bool asks_before_ending = false;
    // CUDA_VISIBLE_DEVICES as a scheduler set it: the job's device numbers are places in this list.
    std::optional<std::string> visible_devices;
    // An eventfd, readable once the launcher wants this agent for another attempt; -1: nobody asks.
    int come_again_fd = -1;
    // Rank 0's stdin, if this agent starts rank 0. It stays the caller's.
    WorkerStdin worker_stdin;
    LauncherLease lease = LauncherLease::same_machine();
};

// Serves one launcher over the two descriptors, whose bytes pass CHANNEL, and returns the exit code
// of the process. A guardian process stays above the agent and ends the rest should the agent
// itself be killed. REQUIRES: called before any thread starts.
[[nodiscard]] int run_agent(int in_fd, int out_fd, JoinChannel channel,
                            const AgentSettings& settings = {});

// Returns the answer to FRAME; nullopt: FRAME is not such a question. Work that takes seconds calls
// WHILE_WAITING every few milliseconds. Throws Error{kInternal} on malformed payloads.
[[nodiscard]] std::optional<Frame> answer_command(const Frame& frame,
                                                  const std::function<void()>& while_waiting);

// Answers REQUEST; calls ALIVE every few megabytes while it reads files. FetchReply::error says why
// a file cannot be read.
[[nodiscard]] FetchReply answer_fetch(const FetchRequest& request,
                                      const std::function<void()>& alive);

struct AgentArguments {
    bool help = false;  // true: the help was printed on stdout
    bool stdio = false;
    bool same_machine = false;  // the launcher or the relay at the other end is on this machine
    WorkerStdin worker_stdin;
    std::string token_file;  // empty: DSLAUNCH_TOKEN
    JoinRequest join;        // without stdio; the token is not yet in it
};

// Parses ARGUMENTS (no `agent`). VARIABLE gives the environment: --node-from and --node-name-from
// name a scheduler's variables (OMPI_COMM_WORLD_RANK, SLURMD_NODENAME). Throws Error{kUsage}.
[[nodiscard]] AgentArguments parse_agent_arguments(
    std::span<const std::string> arguments,
    const std::function<std::optional<std::string>(const std::string&)>& variable);

// Serves one launcher until its job is over. Returns the exit code of the process. REQUIRES: no
// other thread yet.
[[nodiscard]] int run_agent_command(std::span<const std::string> arguments);

// Joins as REQUEST says and serves that launcher, again for each further attempt of its job.
[[nodiscard]] int run_joining_agent(JoinRequest request, WorkerStdin worker_stdin = {});

}  // namespace dslaunch::launch
