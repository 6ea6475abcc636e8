// The environment of one rank: its variable names are written and parsed only here. The launch plan
// fills it, the agent adds the descriptors and makes it text as it starts the worker, dsworker
// reads it back.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "launch/process/spawn.h"

namespace dslaunch::launch {

// The level of dsworker's log, as parse_log_level() reads it; not set: info.
inline constexpr const char* kLogLevelVariable = "DSL_LOG_LEVEL";
// The processors that a rank was bound to, as "0-3,8", or "none" for --bind none; not set: a
// dsworker pins itself when the ranks of its host use up all processors.
inline constexpr const char* kBindingVariable = "DSL_BINDING";
inline constexpr const char* kLaunchIdVariable = "DSL_LAUNCH_ID";
// The name of the rank's host, in jobs whose hosts are not pretended on the launcher's machine.
inline constexpr const char* kHostVariable = "DSL_HOST";
// The number of starts of ranks in the same launch before this one: restarts, and the start on
// another MASTER_PORT. Later agents recognize earlier attempts' processes by it.
inline constexpr const char* kAttemptVariable = "DSL_ATTEMPT";
// OpenMP's own: the threads of an operator, and whether those that wait spin or sleep.
inline constexpr const char* kThreadsVariable = "OMP_NUM_THREADS";
inline constexpr const char* kWaitVariable = "OMP_WAIT_POLICY";
// libgomp's: the looks that a waiting thread takes before it sleeps.
inline constexpr const char* kSpinVariable = "GOMP_SPINCOUNT";
// Returns the number of looks that take about as long as the system takes to wake a thread, 75 us.
// It is measured on this processor in less than a millisecond. Threads that wait so take little
// from a neighbour and lose little without one (docs/scale/threads.md).
[[nodiscard]] int64_t spin_count();
// Returns the threads that VALUE of OMP_NUM_THREADS, "4" or "4,2" by level, gives an operator; 1 if
// it is not a number.
[[nodiscard]] int64_t first_threads(std::string_view value);

struct WorkerEnvironment {
    // The members that travel to an agent (base/text/message.h).
    static auto wire_members(auto& m) {
        return std::tie(m.rank, m.world_size, m.local_rank, m.local_world_size, m.node_rank,
                        m.node_sizes, m.master_address, m.master_port, m.devices, m.job_id,
                        m.launch_id, m.attempt, m.restart_count, m.max_restarts);
    }

    int rank = 0;
    int world_size = 1;
    int local_rank = 0;
    int local_world_size = 1;
    int node_rank = 0;
    std::vector<int> node_sizes = {1};  // DSL_NODE_SIZES "2,1": workers of each node, by node rank
    std::string master_address = "127.0.0.1";
    int master_port = 0;
    std::string devices;    // CUDA_VISIBLE_DEVICES, empty on a CPU run; read without it: all GPUs
    std::string job_id;     // DSL_JOB_ID; also TORCHELASTIC_RUN_ID
    std::string launch_id;  // DSL_LAUNCH_ID, see JobSpec
    int attempt = 0;        // DSL_ATTEMPT
    int restart_count = 0;  // TORCHELASTIC_RESTART_COUNT
    int max_restarts = 0;   // TORCHELASTIC_MAX_RESTARTS

    // Descriptors inherited by dsworker, -1: none. All others are close-on-exec.
    int arena_fd = -1;       // DSL_ARENA_FD: one memfd per job and node, shared by its ranks
    int rendezvous_fd = -1;  // DSL_RENDEZVOUS_FD: listening socket, only in rank 0
    int control_fd = -1;     // DSL_CONTROL_FD: frames to and from the agent
                             // (launch/protocol/control.h)

    // Returns every variable of a worker, in a fixed order, without descriptors that are -1.
    [[nodiscard]] EnvironmentList variables() const;

    // Reads this process's environment; without RANK it is a world of one. Throws Error{kSetup}
    // that names the variable that is missing, malformed or contradicts another.
    [[nodiscard]] static WorkerEnvironment from_process();
};

}  // namespace dslaunch::launch
