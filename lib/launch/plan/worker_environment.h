// The environment of one rank: the names of its variables are defined only here, and the variables
// of its place in the job are written and parsed only here. The launch plan fills it, the agent
// adds the descriptors and turns it into text when it starts the worker, and dsworker reads it.
// Other launchers set variables with some of the same names; launcher/run/foreign_ranks.h finds
// these.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "launch/process/spawn.h"

namespace dslaunch::launch {

// The level of dsworker's log, in the form that parse_log_level() reads; not set: info.
inline constexpr const char* kLogLevelVariable = "DSL_LOG_LEVEL";
// The processors that a rank was bound to, as "0-3,8", or "none" for --bind none. If it is not set,
// a dsworker pins itself when the ranks of its host use up all processors.
inline constexpr const char* kBindingVariable = "DSL_BINDING";
inline constexpr const char* kJobIdVariable = "DSL_JOB_ID";
inline constexpr const char* kLaunchIdVariable = "DSL_LAUNCH_ID";
// The name of the rank's host; only set in jobs whose hosts are real, not pretended on the
// launcher's machine.
inline constexpr const char* kHostVariable = "DSL_HOST";
// The number of times that the same launch has already started ranks. It counts restarts, and
// attempts that were repeated with another MASTER_PORT. Later agents use it to recognize the
// processes of earlier attempts.
inline constexpr const char* kAttemptVariable = "DSL_ATTEMPT";
// CUDA's own variable for the GPUs that a process sees.
inline constexpr const char* kDevicesVariable = "CUDA_VISIBLE_DEVICES";
// OpenMP's own variable for the threads of an operator.
inline constexpr const char* kThreadsVariable = "OMP_NUM_THREADS";
// Sets GOMP_SPINCOUNT, with which libgomp's waiting threads spin for about 75 us before they sleep:
// as long as the system takes to wake a thread, and so short that they take little time from other
// threads (docs/scale/threads.md). Keeps a value in ENVIRONMENT, and sets nothing if
// OMP_WAIT_POLICY is set. Measures this processor in less than a millisecond.
void limit_spinning(EnvironmentList& environment);
// Returns the number of threads of an operator if OMP_NUM_THREADS is VALUE, which is "4" or, with
// one number for each nesting level, "4,2". Returns nothing if VALUE does not begin with a number
// of at least 1.
[[nodiscard]] std::optional<int64_t> first_threads(std::string_view value);
// Returns the default number of threads of this process if it is one of RANKS ranks of this
// machine: the first number of its OMP_NUM_THREADS, or else an equal share of the processors that
// it gets, at least 1.
[[nodiscard]] int64_t rank_threads(int64_t ranks);

// The processors of one rank, as its agent has decided.
struct RankProcessors {
    bool is_worker = false;     // a dsworker; other programs choose their threads themselves
    int64_t ranks = 1;          // ranks on this machine
    int64_t cores = 1;          // processors of this machine
    int64_t bound_threads = 0;  // threads of a rank that is bound to processors; 0: not bound
    std::string binding;        // DSL_BINDING; empty: not set
};
// Sets OMP_NUM_THREADS, OMP_WAIT_POLICY, GOMP_SPINCOUNT and DSL_BINDING in ENVIRONMENT for SHARE.
// Keeps the user's own values of the first three.
void set_processors(const RankProcessors& share, EnvironmentList& environment);

// The variables of set_processors() that describe a rank's use of processors. Empty: not set.
struct ProcessorVariables {
    std::string threads;  // OMP_NUM_THREADS
    std::string waiting;  // OMP_WAIT_POLICY
    std::string binding;  // DSL_BINDING
};
// Returns the values of a rank's processor variables in ENVIRONMENT.
[[nodiscard]] ProcessorVariables processor_variables(const EnvironmentList& environment);

// The variables that show which launch a process belongs to.
struct LaunchMark {
    std::string launch_id;           // DSL_LAUNCH_ID
    std::optional<int64_t> attempt;  // DSL_ATTEMPT; nothing: not set, or not a number
    int64_t rank = -1;               // RANK; -1: none
};
// Returns the mark in the environment of a process; nothing if no launch has started the process.
[[nodiscard]] std::optional<LaunchMark> launch_mark_of(const EnvironmentList& environment);

// The place of one rank in its job.
struct WorkerEnvironment {
    // The members that are sent to an agent (base/text/message.h).
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
    std::string devices;    // CUDA_VISIBLE_DEVICES, empty in a CPU run; all GPUs if it is not set
    std::string job_id;     // DSL_JOB_ID; also TORCHELASTIC_RUN_ID
    std::string launch_id;  // DSL_LAUNCH_ID, see JobSpec
    int attempt = 0;        // DSL_ATTEMPT
    int restart_count = 0;  // TORCHELASTIC_RESTART_COUNT
    int max_restarts = 0;   // TORCHELASTIC_MAX_RESTARTS

    // Descriptors that dsworker inherits, -1: none. All others are close-on-exec.
    int arena_fd = -1;       // DSL_ARENA_FD: one memfd per job and node, shared by its ranks
    int rendezvous_fd = -1;  // DSL_RENDEZVOUS_FD: listening socket, only in rank 0
    int control_fd = -1;     // DSL_CONTROL_FD: frames to and from the agent
                             // (launch/protocol/control.h)

    // Returns every variable of a worker, in a fixed order, without descriptors that are -1.
    [[nodiscard]] EnvironmentList variables() const;

    // Returns true if this process's environment says that it is a rank: RANK is set.
    [[nodiscard]] static bool has_rank();
    // Reads this process's environment; if has_rank() is false, the world has one rank. Throws
    // Error{kSetup} that names the variable if one is missing, malformed or contradicts another
    // variable.
    [[nodiscard]] static WorkerEnvironment from_process();
};

}  // namespace dslaunch::launch
