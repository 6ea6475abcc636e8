#include "launch/agent/agent_worker.h"

#include <fmt/format.h>
#include <linux/mempolicy.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/error.h"
#include "base/log.h"
#include "launch/machine/machine_topology.h"
#include "launch/machine/torch_place.h"
#include "launch/plan/environment_file.h"
#include "launch/process/spawn.h"

namespace dslaunch::launch {
namespace {

// The part of the agent's own environment that a worker on another machine gets.
constexpr const char* kRemoteVariables[] = {"PATH",  "HOME", "USER",  "LOGNAME",
                                            "SHELL", "LANG", "TMPDIR"};

EnvironmentList worker_environment(const StartRequest& request, const StartRequest::Worker& wanted,
                                   const WorkerEnvironment& place) {
    EnvironmentList environment;
    const EnvironmentList own = own_environment();
    if (request.inherit_all) {
        environment = own;
    } else {
        for (const char* name : kRemoteVariables) {
            if (const std::string* value = find_variable(own, name)) {
                environment.emplace_back(name, *value);
            }
        }
    }
    // If a value refers to a variable, the reference is replaced as in a shell: by the value that
    // this function has already set, or, if there is none, by the host's value.
    const auto value_of = [&](const std::string& name) {
        const std::string* const set = find_variable(environment, name);
        return set != nullptr ? set : find_variable(own, name);
    };
    for (size_t i = 0; i < wanted.environment.size(); ++i) {
        const auto& [name, value] = wanted.environment[i];
        const bool expands = std::ranges::count(wanted.expanded, static_cast<int64_t>(i)) > 0;
        set_variable(environment, name, expands ? expand_variables(value, value_of) : value);
    }
    if (wanted.is_rank)
        for (const auto& [name, value] : place.variables()) set_variable(environment, name, value);
    for (const auto& [name, value] : request.defaults) {
        if (find_variable(environment, name) == nullptr) environment.emplace_back(name, value);
    }
    return environment;
}

// Determines which lines of WORKER are passed on before they end. ASKS: the program may ask its
// user questions.
void set_open_lines(AgentWorker& worker, TargetKind kind, bool asks) {
    if (kind != TargetKind::kModel) {
        const OpenLines open_lines = asks ? OpenLines::kAlways : OpenLines::kAfterReturn;
        worker.stdout_lines = worker.stderr_lines = LineSplitter(open_lines);
    } else if (worker.rank == 0) {
        worker.stdout_lines = LineSplitter(OpenLines::kAlways);
    }
}

// Enough rounds to empty a full pipe, which holds at most 1 MiB; a socket holds less.
constexpr int kRoundsMax = 16;

}  // namespace

std::string read_lines(AgentWorker& worker, OutputStream stream, bool to_the_end) {
    const bool is_stdout = stream == OutputStream::kStdout;
    UniqueFd& pipe = is_stdout ? worker.stdout_pipe : worker.stderr_pipe;
    LineSplitter& splitter = is_stdout ? worker.stdout_lines : worker.stderr_lines;
    char block[kReadBytes];
    std::string lines;
    // A descendant that never stops writing must not keep the agent in this loop.
    for (int round = 0; pipe.valid() && round < (to_the_end ? kRoundsMax : 1); ++round) {
        const ssize_t n = ::read(pipe.get(), block, sizeof block);
        if (n > 0) {
            lines += splitter.add(std::string_view(block, static_cast<size_t>(n)));
        } else if (n == 0 || errno != EINTR) {
            if (n == 0 || errno != EAGAIN) pipe.reset();
            break;
        }
    }
    if (to_the_end || !pipe.valid()) lines += splitter.finish();
    return lines;
}

bool read_control_frames(AgentWorker& worker,
                         const std::function<void(const WorkerControl&)>& take) {
    char block[kReadBytes];
    for (int round = 0; worker.control.valid(); ++round) {
        if (round == kRoundsMax) return false;
        const ssize_t n = ::read(worker.control.get(), block, sizeof block);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && errno == EAGAIN) return true;
        if (n <= 0) {
            worker.control.reset();
            return true;
        }
        try {
            worker.control_frames.append(std::string_view(block, static_cast<size_t>(n)));
            while (auto frame = worker.control_frames.next()) {
                take({worker.rank, static_cast<uint32_t>(frame->kind), std::move(frame->payload)});
            }
        } catch (const Error& error) {
            log_error("agent",
                      "rank {}: closing its control socket, because its data cannot be read: {}",
                      worker.rank, error.what());
            worker.control.reset();
        }
    }
    return true;
}

std::vector<RankPlace> place_workers(const StartRequest& request) {
    const BindMode mode = request.binding.mode;
    if (mode == BindMode::kAuto || mode == BindMode::kNone) return {};
    const auto gpus = rank_gpus(request.workers.front().place.devices, request.workers.size());
    std::vector<RankPlace> places =
        place_ranks(read_machine_topology("", allowed_processors()), {request.binding, gpus});
    const bool binds_memory = std::any_of(places.begin(), places.end(), [](const RankPlace& place) {
        return place.memory_node >= 0;
    });
    // Tests whether the kernel allows memory policies, by setting the policy that the process
    // already has. The kernel refuses this only if it allows no policy at all.
    if (binds_memory && ::syscall(SYS_set_mempolicy, MPOL_DEFAULT, nullptr, 0) != 0) {
        log_warn("agent",
                 "memory is not bound to NUMA nodes: set_mempolicy: {} (a container without "
                 "CAP_SYS_NICE?)",
                 errno_text(errno));
    }
    return places;
}

WorkerLaunch launch_worker(const StartRequest& request, const StartRequest::Worker& wanted,
                           const SharedDescriptors& shared) {
    WorkerLaunch launch;
    WorkerEnvironment place = wanted.place;
    launch.worker.rank = place.rank;
    SpawnRequest spawn_request;
    spawn_request.command = wanted.command;
    spawn_request.working_directory = request.working_directory;
    spawn_request.die_with_parent = true;
    Pipe out = make_pipe();
    Pipe err = make_pipe();
    spawn_request.stdout_fd = out.write_end.get();
    spawn_request.stderr_fd = err.write_end.get();
    // The kernel stops a background process group that reads from its terminal. In a session of its
    // own, a worker may read from the terminal.
    const WorkerStdin input = place.rank == 0 ? shared.stdin_of_rank_0 : WorkerStdin();
    spawn_request.stdin_fd = input.fd;
    spawn_request.new_session = input.fd >= 0 && ::isatty(input.fd) == 1;
    const bool asks = input.asks || spawn_request.new_session;
    set_open_lines(launch.worker, request.target_kind, asks);
    UniqueFd worker_end;
    if (request.target_kind == TargetKind::kModel) {
        int pair[2];
        if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) {
            launch.error = fmt::format("cannot make a socket pair: {}", errno_text(errno));
            return launch;
        }
        launch.worker.control = UniqueFd(pair[0]);
        worker_end = UniqueFd(pair[1]);
        set_blocking(pair[0], false);
        place.control_fd = worker_end.get();
        if (place.rank == 0) place.rendezvous_fd = shared.rendezvous_fd;
    }
    if (has_arena(request.target_kind)) place.arena_fd = shared.arena_fd;
    for (const int fd : {place.control_fd, place.arena_fd, place.rendezvous_fd})
        if (fd >= 0) spawn_request.kept_fds.push_back(fd);
    spawn_request.environment = worker_environment(request, wanted, place);
    RankProcessors share{request.target_kind == TargetKind::kModel, request.machine_ranks,
                         shared.cores, 0, request.binding.mode == BindMode::kNone ? "none" : ""};
    if (shared.place != nullptr) {
        spawn_request.processors = shared.place->processors;
        spawn_request.memory_node = shared.place->memory_node;
        share.bound_threads = shared.place->threads;
        share.binding = processor_list_text(shared.place->processors);
    }
    set_processors(share, spawn_request.environment);
    if (request.target_kind == TargetKind::kModel) {
        try {
            lead_to_torch(spawn_request.command.front(), spawn_request.environment);
        } catch (const Error& error) {
            launch.error = error.what();
            launch.exit_code = static_cast<int>(error.code());
            return launch;
        }
    }
    const SpawnResult result = spawn(spawn_request);
    launch.error = result.error;
    launch.exit_code = result.exit_code;
    launch.worker.pid = result.pid;
    launch.started = {place.rank, result.pid, spawn_request.environment};
    launch.worker.stdout_pipe = std::move(out.read_end);
    launch.worker.stderr_pipe = std::move(err.read_end);
    set_blocking(launch.worker.stdout_pipe.get(), false);
    set_blocking(launch.worker.stderr_pipe.get(), false);
    return launch;
}

}  // namespace dslaunch::launch
