// One worker as its agent sees it: process, pipes, control socket.
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

struct AgentWorker {
    int64_t rank = 0;
    pid_t pid = -1;
    bool ended = false;
    UniqueFd stdout_pipe;
    UniqueFd stderr_pipe;
    UniqueFd control;  // not valid: this worker has none, or closed it
    LineSplitter stdout_lines;
    LineSplitter stderr_lines;
    ControlDecoder control_frames;
};

// Reads what STREAM has now, in whole lines, except for a progress bar or a question. TO_THE_END:
// reads everything in the pipe, with a last line that has no end.
[[nodiscard]] std::string read_lines(AgentWorker& worker, OutputStream stream, bool to_the_end);
// Hands over the worker's frames, at most as many as a socket holds, so that an endless speaker
// holds up nobody. True: no frame is left. Bytes that are not a frame close the socket.
[[nodiscard]] bool read_control_frames(AgentWorker& worker,
                                       const std::function<void(const WorkerControl&)>& take);

struct WorkerStdin {
    int fd = -1;        // -1: /dev/null
    bool asks = false;  // a terminal is at its other end: questions are shown before their lines
                        // end
};

// The descriptors that all workers of a node share, handed down by number.
struct SharedDescriptors {
    int arena_fd = -1;
    int rendezvous_fd = -1;  // for the worker that takes it
    WorkerStdin stdin_of_rank_0;
    int64_t cores = 1;
    const RankPlace* place = nullptr;  // processors of this worker; null: any
};

struct WorkerLaunch {
    AgentWorker worker;
    WorkerStarted started;
    std::string error;    // not empty: it does not run
    int exit_code = 127;  // code of the rank if it could not start
};

// Returns the processors of each worker, by its place in the request; empty: nobody is bound. Reads
// the topology of this machine when it must, and says on stderr when memory cannot be bound. Throws
// Error{kUsage} as place_ranks() does.
[[nodiscard]] std::vector<RankPlace> place_workers(const StartRequest& request);

// Starts one worker in a process group of its own.
[[nodiscard]] WorkerLaunch launch_worker(const StartRequest& request,
                                         const StartRequest::Worker& wanted,
                                         const SharedDescriptors& shared);

}  // namespace dslaunch::launch
