// The agent: one per job and node, started by a transport as `dslaunch agent --stdio`. It starts
// the node's workers, forwards their messages and output, and ends all workers on request or when
// its input closes. So if the launcher is gone, for any reason, its job ends too. One thread; it
// forks only from that thread.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "launch/agent/agent_worker.h"
#include "launch/machine/launcher_silence.h"
#include "launch/transport/join/join_channel.h"

namespace dslaunch::launch {

// The settings of an agent. They come from its command line and from the way in which it was
// started.
struct AgentSettings {
    // The address at which the launcher reached this machine, for transports that do not report it.
    // If it is empty, the agent uses the address in sshd's SSH_CONNECTION.
    std::string arrival_address;
    // If true, the agent passes a signal from outside to the launcher, which then lets the ranks
    // save. For example, a scheduler ends the job, or a pod is removed. Only a second signal ends
    // the workers directly.
    bool asks_before_ending = false;
    // CUDA_VISIBLE_DEVICES as a scheduler set it: the job's device numbers are indices into this
    // list.
    std::optional<std::string> visible_devices;
    // An eventfd that becomes readable when the launcher wants this agent for another attempt of
    // the job; -1 if the caller does not need to know.
    int come_again_fd = -1;
    // Rank 0's stdin, if this agent starts rank 0. The caller keeps ownership of the descriptor.
    WorkerStdin worker_stdin;
    LauncherLease lease = LauncherLease::same_machine();
};

// Serves one launcher over the two descriptors, whose bytes CHANNEL encodes and decodes, and
// returns the exit code of the process. A guardian process stays alive as the agent's parent and
// ends all of the agent's processes if the agent itself is killed. REQUIRES: called before any
// thread starts.
[[nodiscard]] int run_agent(int in_fd, int out_fd, JoinChannel channel,
                            const AgentSettings& settings = {});

}  // namespace dslaunch::launch
