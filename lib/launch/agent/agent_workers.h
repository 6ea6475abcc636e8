// The workers of one agent, from their start to the report of their ends. One thread.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "launch/agent/agent_worker.h"
#include "launch/network/network_probe.h"
#include "launch/process/kill_group.h"
#include "launch/protocol/frame.h"
#include "launch/protocol/messages.h"

namespace dslaunch::launch {

// The facts and descriptors that the workers of an agent get from it.
struct WorkerSources {
    MeetingSocket& rendezvous;  // AgentWorkers closes the socket once the workers have it
    int64_t cores = 1;          // processors of this machine
    WorkerStdin stdin_of_rank_0;
    // CUDA_VISIBLE_DEVICES as a scheduler set it; nullopt if it is not set, which means all GPUs.
    std::optional<std::string> visible_devices;
};

// Starts workers. Sends the launcher their output and control frames, and reports their ends.
class AgentWorkers {
  public:
    // SEND gets the frames for the launcher.
    using Send = std::function<void(FrameKind kind, std::string payload)>;
    explicit AgentWorkers(Send send) : send_(std::move(send)) {}

    // Starts the workers of REQUEST; reports the workers that cannot be started. Throws
    // Error{kSetup} if this machine refuses something that all workers need. REQUIRES: no earlier
    // call has started a worker.
    void start(const StartRequest& request, const WorkerSources& sources);
    // Returns the workers; they stay at their places in memory after start().
    [[nodiscard]] std::vector<AgentWorker>& all() { return workers_; }

    // Passes on what WORKER has written on STREAM; TO_THE_END as in read_lines().
    void read_output(AgentWorker& worker, OutputStream stream, bool to_the_end);
    // Passes on the control frames of WORKER. Returns false if some are left.
    bool read_control(AgentWorker& worker);
    // Sends a signal to the process groups of all workers that have not ended.
    void signal(int signal_number) const;
    // Asks all workers to save and end.
    void save();
    // Reports the end of the worker with process id PID; does nothing if PID is not a worker.
    // STATUS is the result of waitpid(). WAS_TOLD_TO_END returns true if the agent ended the
    // process; its argument is the number of the signal that ended the process (0: no signal).
    void report_end(pid_t pid, int status,
                    const std::function<bool(int signal_number)>& was_told_to_end);

  private:
    void start_one(const StartRequest& request, StartRequest::Worker worker,
                   const WorkerSources& sources, const SharedDescriptors& shared);
    void report_not_started(int64_t rank, const std::string& cause, int exit_code = 127);
    void report_exit(AgentWorker& worker, int status,
                     const std::function<bool(int signal_number)>& was_told_to_end);

    Send send_;
    std::vector<AgentWorker> workers_;
    OomCount oom_before_;
};

}  // namespace dslaunch::launch
