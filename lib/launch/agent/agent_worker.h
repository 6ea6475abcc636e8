// One worker from its agent's point of view: process, pipes, control socket.
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>

#include "base/fd.h"
#include "launch/plan/launch_plan.h"
#include "launch/process/line_splitter.h"
#include "launch/protocol/control.h"
#include "launch/protocol/messages.h"

namespace dslaunch::launch {

// A worker that has been started.
struct AgentWorker {
    int64_t rank = 0;
    pid_t pid = -1;
    bool ended = false;
    UniqueFd stdout_pipe;
    UniqueFd stderr_pipe;
    UniqueFd control;  // invalid if the worker has no control socket or has closed it
    LineSplitter stdout_lines;
    LineSplitter stderr_lines;
    ControlDecoder control_frames;
};

// Reads the bytes that STREAM has now and returns the whole lines. Also returns the beginning of a
// progress bar or a question, before its line ends. With TO_THE_END, it reads everything in the
// pipe and also returns a last line without a newline.
[[nodiscard]] std::string read_lines(AgentWorker& worker, OutputStream stream, bool to_the_end);
// Passes the worker's frames to TAKE. One call takes at most as many as fit into a socket buffer,
// so that a worker that never stops sending does not delay the others. Returns true if no frame is
// left. Closes the socket if its bytes are not a frame.
[[nodiscard]] bool read_control_frames(AgentWorker& worker,
                                       const std::function<void(const WorkerControl&)>& take);

// The stdin of rank 0. The descriptor is not owned.
struct WorkerStdin {
    int fd = -1;        // -1: /dev/null
    bool asks = false;  // true if a terminal is at its other end: a question is then shown before
                        // its line ends
};

// The descriptors that the workers of a node inherit from their agent, under the same numbers.
struct SharedDescriptors {
    int arena_fd = -1;
    int rendezvous_fd = -1;  // only rank 0 inherits it
    WorkerStdin stdin_of_rank_0;
    int64_t cores = 1;
    const RankPlace* place = nullptr;  // processors of this worker; null: any
};

// The result of an attempt to start a worker.
struct WorkerLaunch {
    AgentWorker worker;
    WorkerStarted started;
    std::string error;    // why the worker does not run; empty if it runs
    int exit_code = 127;  // the rank's exit code if it could not start
};

// Returns the processors of each worker, by the worker's index in the request; empty if no worker
// is bound. Reads this machine's topology only if it is needed, and reports on stderr if memory
// cannot be bound. Throws Error{kUsage} as place_ranks() does.
[[nodiscard]] std::vector<RankPlace> place_workers(const StartRequest& request);

// Starts one worker in a process group of its own.
[[nodiscard]] WorkerLaunch launch_worker(const StartRequest& request,
                                         const StartRequest::Worker& wanted,
                                         const SharedDescriptors& shared);

}  // namespace dslaunch::launch
