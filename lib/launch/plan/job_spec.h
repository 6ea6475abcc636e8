// Everything that a job needs, decided before any host is contacted: the command line, hostfile and
// filters become one JobSpec; run_job() (launch/supervise/job.h) executes it. A plain value: no
// file descriptors, nothing resolved on the network.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "launch/plan/monitor_settings.h"
#include "launch/plan/worker_environment.h"

namespace dslaunch::launch {

// The unit by which ranks are bound to processors (--bind).
enum class BindMode : uint8_t {
    kAuto,         // the ranks divide up the threads; a dsworker pins itself if the ranks use all
                   // processors of the host
    kNone,         // no rank is bound
    kCore,         // each rank has its own share of the cores, in order
    kNuma,         // each rank has all processors of a NUMA node: the node of its GPU; ranks
                   // without a GPU are spread over the nodes
    kSocket,       // each rank has all processors of a package, chosen as with kNuma
    kExclusive,    // each rank has its own share of the cores of its NUMA node
    kCoreComplex,  // each rank has one group of cores that share a last-level cache, in its NUMA
                   // node
};

// Returns true if MODE is a value of the enum; values in messages are checked with this function.
inline bool is_known(BindMode mode) {
    return mode <= BindMode::kCoreComplex;
}

// The user's wishes about the processors of ranks.
struct BindingRequest {
    BindMode mode = BindMode::kAuto;
    std::string core_list;  // "0-3,8": only these processors of each host; empty: all

    bool operator==(const BindingRequest&) const = default;
};

// Returns "core", "core-complex", …, the form that --bind and messages use.
[[nodiscard]] const char* bind_mode_name(BindMode mode);

// The way in which agents are started.
enum class TransportKind {
    kLocal,    // agents as children of this process; several nodes are pretended hosts on this
               // machine
    kSsh,      // libssh
    kOpenSsh,  // the ssh program
    kJoin,     // agents that connect by themselves
    kSlurm,    // agents started by one srun, inside an allocation
    kPdsh,     // agents started by one pdsh
    kOpenMpi,  // agents started by one mpirun of Open MPI
};

// The largest number of hosts that ssh reaches without a tree, unless --fanout says otherwise. A
// session costs the launcher 1.5 ms of processor time, and a level of a tree costs 0.2 s or more.
// Each ssh program needs three pipes: with this number of programs, the launcher stays below the
// usual limit of 1,024 descriptors.
inline constexpr size_t kDefaultFanout = 256;

// The kind of program that the ranks run.
enum class TargetKind {
    kModel,    // dsworker train TARGET; the job ends with our ExitCode
    kPython,   // the job ends with the first failing rank's own code, 128+n for a signal
    kProgram,  // the job ends like kPython
};
// Returns true if the ranks of a host get memory to share (DSL_ARENA_FD). A model's ranks need it;
// a program's ranks may use it (include/dslaunch/engine.h).
inline bool has_arena(TargetKind kind) {
    return kind != TargetKind::kPython;
}
// Returns true for a value of the enum; messages are checked with it.
inline bool is_known(TargetKind kind) {
    return kind <= TargetKind::kProgram;
}

// The device that the ranks use. kAuto is settled before the ranks start, from the number of GPUs
// that the agents report: it becomes cuda if every node has the devices that its workers name, and
// cpu if no node has any GPU (WorkerEnvironment::devices is then cleared, and one line says so).
// Any other combination is an error. In a local job, kAuto is settled earlier, from this machine's
// GPUs.
enum class DeviceRequest { kAuto, kCpu, kCuda };

// One rank: its place in the job and its command.
struct PlannedWorker {
    WorkerEnvironment environment;     // descriptors are -1; master_port is 0 if it is chosen at
                                       // start
    std::vector<std::string> command;  // argv; argv[0] is looked up in the worker's PATH unless it
                                       // contains a slash
};

// One host and its ranks.
struct PlannedNode {
    std::string name;                    // name in the hostfile, in every message and in prefixes
    std::string user;                    // empty if the ssh configuration gives it
    int port = 0;                        // port of sshd; 0: from the ssh configuration, else 22
    std::string address;                 // addr=, to connect to instead of `name`; empty: `name`
    std::vector<PlannedWorker> workers;  // by local rank, never empty
};

// Returns the number of ranks on all NODES. REQUIRES: NODES is a whole launch plan, not empty.
[[nodiscard]] inline int world_size_of(const std::vector<PlannedNode>& nodes) {
    return nodes.front().workers.front().environment.world_size;
}

// The variables that the launcher sends to all ranks.
struct EnvironmentRules {
    // On this machine, workers start from all of the launcher's environment; remote workers start
    // from the agent's PATH, HOME, USER, LOGNAME, SHELL, LANG, TMPDIR. Then `set` is applied in
    // order, then WorkerEnvironment::variables(). A later value wins.
    bool inherit_all = true;
    EnvironmentList set;
    // Indices in `set` of values that refer to other variables (environment_file.h): the agent
    // replaces the references with the values on its host, after it has applied earlier entries of
    // `set`.
    std::vector<int64_t> expanded;
};

// A job's settings for its output on the terminal and for its logs.
struct LogSettings {
    std::string level = "info";          // error, warn, info, debug
    bool quiet = false;                  // no progress line; dslaunch itself writes only
                                         // warnings and errors
    bool print_environment = false;      // show each rank's actual environment after the start
    int straggler_interval_steps = 100;  // steps between two checks for a straggler; 0: none
    std::string each_rank_directory;     // folder of --enable_each_rank_log; empty: none. Logs
                                         // below `output_directory` are always written

    // Returns true if lines of the level "detail" are shown too.
    [[nodiscard]] bool shows_details() const { return level == "debug"; }
};

// The smallest and largest number of hosts of a job (--nnodes MIN:MAX).
struct NodeCounts {
    int min = 1;
    int max = 1;
};

// The rules of a job that may run on some of its hosts, and on other hosts after a failure.
struct ElasticRules {
    NodeCounts nodes;                // the smallest and the largest number of nodes of an attempt
    std::vector<std::string> hosts;  // all hosts that may be used, in order; empty if every attempt
                                     // needs all of JobSpec::nodes
    // Returns the nodes and ranks for some of `hosts`. CHOSEN: the indices of these hosts,
    // ascending.
    std::function<std::vector<PlannedNode>(const std::vector<size_t>& chosen)> plan;
    // Returns true if the job can run on RANKS ranks. Not set if it can run on any number of ranks.
    std::function<bool(int ranks)> fits;

    // Returns true if the job may run on fewer hosts.
    [[nodiscard]] bool on() const { return !hosts.empty(); }
};

inline constexpr int64_t kBringBytesMax = int64_t{2} << 30;

// The purpose of a kModel job's ranks.
enum class ModelDuty {
    kTrain,  // on a request to end, they save
    kWrite,  // rank 0's stdout is the result
    kServe,  // on a request to end, they finish their work; that is not an interruption
};

// A job: everything that the launcher needs to know to run it.
struct JobSpec {
    TargetKind target_kind = TargetKind::kProgram;
    ModelDuty duty = ModelDuty::kTrain;
    std::string target;              // target on the command line
    std::vector<PlannedNode> nodes;  // by node rank, never empty
    int world_size = 0;              // sum of the nodes' workers
    TransportKind transport = TransportKind::kLocal;
    DeviceRequest device = DeviceRequest::kCpu;
    EnvironmentRules environment;
    std::string job_id;  // printable, no spaces, unique per start
    // 128 random bits in hex, new with each start of the launcher and equal in all its attempts.
    // They distinguish the job's processes from the processes of another job with the same job_id.
    std::string launch_id;
    std::string working_directory;  // absolute; workers start here, on every node
    std::string output_directory;   // absolute, on the launcher's machine; empty: none
    // The command that continues this training, for the user; empty if there is no such command.
    std::string resume_command;
    // The trained weights are copied from rank 0's host to the launcher's output_directory, if they
    // are not already there and have at most this many bytes; 0: never.
    int64_t bring_bytes_max = kBringBytesMax;
    // The names of the weight files below output_directory.
    std::vector<std::string> weight_files = {"model.safetensors", "model.pt"};
    std::string state_directory;             // folder of this user's job records; empty: none
    std::string ssh_config_path;             // empty: the user's and the system's
    std::vector<std::string> launcher_args;  // for srun, pdsh, mpirun or ssh, as the user gave them
    // kJoin: HOST:PORT where the launcher waits for agents, and the token that they must show. The
    // token is never printed, logged or given to a worker.
    std::string listen;
    std::string token;
    // kSlurm, kLocal: a name that shows that the job runs, for the case that srun has started
    // several copies of this program. The launcher holds the name and, on other hosts, an agent
    // holds it. The other copies wait until no process holds it. Empty: there are no other copies.
    std::string held_name;
    bool serves_node_0 = false;  // kJoin: this machine is node 0, its agent a child of the launcher
    size_t fanout = 0;           // hosts that one launcher or relay connects to, at least 2; if
                                 // there are more, some hosts start agents on others. 0: no tree
    int master_port = 0;         // 0: free port chosen and bound by the agent of node rank 0
    std::string master_address;  // empty: decided at start (loopback for one node, else node 0's
                                 // address)
    std::chrono::milliseconds grace{30'000};  // time to save, or to end, after the first Ctrl-C; 0:
                                              // the job ends at once
    // The longest time from the start of a connection until its agent has said hello.
    std::chrono::milliseconds connect_max{30'000};
    int max_restarts = 0;
    ElasticRules elastic;
    std::vector<std::string> required_files;  // absolute paths of files that must be equal on every
                                              // node: dsworker, target, config, data
    std::string interpreter;        // a program that every node must have at this path; empty: none
    bool verify_all_bytes = false;  // --verify: hash data over 1 GiB whole instead of sampling
    bool check_hosts = true;        // false: required_files are not compared, and the
                                    // interpreter is not looked for
    BindingRequest binding;
    LogSettings log;
    MonitorSettings monitors;  // monitors of a kModel job that trains

    // Returns true if the job's purpose is the output of its ranks.
    [[nodiscard]] bool prints_results() const {
        return target_kind != TargetKind::kModel || duty == ModelDuty::kWrite;
    }
};

}  // namespace dslaunch::launch
