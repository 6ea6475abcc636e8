#include "launch/agent/agent_workers.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include <cerrno>
#include <csignal>
#include <utility>

#include "base/error.h"
#include "base/fd.h"
#include "base/log.h"
#include "launch/plan/launch_plan.h"
#include "launch/protocol/control.h"

namespace dslaunch::launch {

void AgentWorkers::start(const StartRequest& request, const WorkerSources& sources) {
    UniqueFd arena;
    if (has_arena(request.target_kind)) {
        arena = UniqueFd(::memfd_create("dslaunch-arena", MFD_CLOEXEC | MFD_ALLOW_SEALING));
        if (!arena.valid())
            fail(ExitCode::kSetup, "cannot make the shared arena: {}", errno_text(errno));
    }
    if (request.target_kind != TargetKind::kModel)
        sources.rendezvous.socket.reset();  // a script or program binds the port itself
    oom_before_ = count_oom_kills();
    std::vector<RankPlace> places;
    try {
        places = place_workers(request);
    } catch (const Error& error) {
        for (const StartRequest::Worker& wanted : request.workers)
            report_not_started(wanted.place.rank, error.what());
        return;
    }
    SharedDescriptors shared{arena.get(), sources.rendezvous.socket.get(), sources.stdin_of_rank_0,
                             sources.cores, nullptr};
    for (size_t i = 0; i < request.workers.size(); ++i) {
        if (!places.empty()) shared.place = &places[i];
        start_one(request, request.workers[i], sources, shared);
    }
    // From here on, only the workers keep these descriptors open.
    sources.rendezvous.socket.reset();
}

void AgentWorkers::start_one(const StartRequest& request, StartRequest::Worker worker,
                             const WorkerSources& sources, const SharedDescriptors& shared) {
    if (worker.command.empty()) fail(ExitCode::kInternal, "received a worker without a command");
    if (sources.visible_devices) {
        worker.place.devices = devices_seen_through(
            worker.place.devices, visible_device_list(sources.visible_devices, 0));
    }
    WorkerLaunch launch = launch_worker(request, worker, shared);
    if (!launch.error.empty())
        return report_not_started(worker.place.rank, launch.error, launch.exit_code);
    workers_.push_back(std::move(launch.worker));
    send_(FrameKind::kStarted, encode(launch.started));
}

void AgentWorkers::report_not_started(int64_t rank, const std::string& cause, int exit_code) {
    WorkerExited exited;
    exited.rank = rank;
    exited.exit_status = exit_code;
    exited.start_error = cause;
    send_(FrameKind::kExited, encode(exited));
}

void AgentWorkers::read_output(AgentWorker& worker, OutputStream stream, bool to_the_end) {
    // Sends the worker's control frames first, because the worker wrote them before this output.
    if (!read_control(worker) && !to_the_end) return;
    const std::string lines = read_lines(worker, stream, to_the_end);
    if (!lines.empty()) send_(FrameKind::kOutput, encode(WorkerOutput{worker.rank, stream, lines}));
}

bool AgentWorkers::read_control(AgentWorker& worker) {
    return read_control_frames(
        worker, [this](const WorkerControl& said) { send_(FrameKind::kControl, encode(said)); });
}

void AgentWorkers::report_end(pid_t pid, int status,
                              const std::function<bool(int signal_number)>& was_told_to_end) {
    for (AgentWorker& worker : workers_)
        if (worker.pid == pid && !worker.ended) report_exit(worker, status, was_told_to_end);
}

void AgentWorkers::report_exit(AgentWorker& worker, int status,
                               const std::function<bool(int signal_number)>& was_told_to_end) {
    worker.ended = true;
    read_output(worker, OutputStream::kStdout, true);
    read_output(worker, OutputStream::kStderr, true);
    static_cast<void>(read_control(worker));
    worker.control.reset();
    WorkerExited exited;
    exited.rank = worker.rank;
    exited.pid = worker.pid;
    if (WIFSIGNALED(status)) {
        exited.signal_number = WTERMSIG(status);
        exited.dumped_core = WCOREDUMP(status);
        if (exited.signal_number == SIGKILL) {
            exited.oom_evidence = describe_oom(oom_before_, count_oom_kills());
        }
    } else {
        exited.exit_status = WEXITSTATUS(status);
    }
    exited.told_to_end = was_told_to_end(static_cast<int>(exited.signal_number));
    send_(FrameKind::kExited, encode(exited));
}

void AgentWorkers::signal(int signal_number) const {
    if (signal_number <= 0 || signal_number >= NSIG) return;
    for (const AgentWorker& worker : workers_) {
        if (!worker.ended) ::kill(-worker.pid, signal_number);
    }
}

void AgentWorkers::save() {
    const std::string bytes = encode(ControlFrame{ControlKind::kSaveAndEnd, {}});
    for (AgentWorker& worker : workers_) {
        // The frame has six bytes, which fit into the socket buffer because the agent sends nothing
        // else over this socket.
        if (worker.control.valid() && write_full(worker.control.get(), bytes) != 0) {
            log_warn("agent", "cannot send the request to save to rank {}", worker.rank);
        }
    }
}

}  // namespace dslaunch::launch
