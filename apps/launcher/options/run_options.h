// The options of `dslaunch run` as the command line gives them. Plain data.
#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launch/hosts/hostfile.h"
#include "launch/plan/job_spec.h"

namespace dslaunch::launcher {

// Each of the structs below has one group of options with the values that were given. If an option
// was not given, its member has the default value.

// The options that choose the hosts of a job, and the restarts.
struct HostOptions {
    std::string hostfile;  // empty: not given
    launch::HostFilter filter;
    std::optional<launch::NodeCounts> nodes;  // --nnodes MIN:MAX
    bool elastic_training = false;            // the next two members are its limits
    std::optional<int> elastic_nodes_min;
    std::optional<int> elastic_nodes_max;
    std::optional<int> max_restarts;
    std::string host_list;      // h1,te[01-16]: hosts, or a part of the hostfile; empty: all
    std::string left_out_list;  // the same for hosts that are left out
    bool standalone = false;
};

// The options for the transport to the hosts, and for the files that the hosts need.
struct TransportOptions {
    std::string launcher;  // ssh, openssh, pdsh, openmpi, slurm, join, local; empty: not given
    std::vector<std::string> launcher_args;
    bool force_multi = false;
    int ssh_port = 0;
    std::string ssh_config;
    bool check_hosts = true;
    std::optional<size_t> fanout;  // JobSpec::fanout
    bool push = false;             // true: send missing files to the hosts first
};

// The options for the places where agents and ranks meet.
struct MeetingOptions {
    bool no_ssh = false;  // true: every node runs this command line, node 0 launches
    bool joins = false;   // with no_ssh: this node gets its number from node 0
    std::optional<int> node_rank;
    std::string listen;      // HOST:PORT for --launcher join; empty: not given
    std::string token_file;  // empty: not given
    std::optional<std::chrono::milliseconds> connect_timeout;  // longest wait until all agents have
                                                               // connected
    std::string master_address;
    int master_port = 0;
};

// The program, and the devices and processors that its workers use.
struct ProgramOptions {
    launch::DeviceRequest device = launch::DeviceRequest::kAuto;
    bool device_given = false;
    bool gpu_each = false;  // --nproc_per_node gpu
    bool module = false;
    bool no_python = false;
    bool no_local_rank = false;  // true also after any torchrun flag
    std::string target;
    std::vector<std::string> arguments;  // the target's own arguments
    launch::BindingRequest binding;      // --bind_core_list alone means --bind core
};

// The environment of the workers, and the files of a job.
struct FileOptions {
    std::vector<std::string> env;  // NAME or NAME=VALUE, in order
    std::vector<std::string> env_files;
    std::string working_directory;           // empty: the launcher's
    std::string output;                      // empty: not given; OwnOutput sets it for training
    bool no_output = false;                  // --no-output
    std::optional<int64_t> bring_bytes_max;  // for trained weights; nullopt: JobSpec's limit
    bool verify = false;
};

// The options that are allowed only if the target is a model.
struct TrainingOptions {
    std::string config;
    bool deepspeed = false;        // --deepspeed: the next word may be the config
    std::vector<std::string> set;  // a.b=c; shorthands too: --steps 5 is dslaunch.steps=5
    std::map<std::string, std::string> set_by;  // a key in `set` -> the shorthand: "--steps"
    std::vector<std::string> op_libraries;      // --op-library; `set` has them too
    bool trust_model = false;                   // --trust-model
    std::string scratch;                        // --scratch, for `dslaunch verify`
    bool verifies = false;                      // `dslaunch verify`
    std::string role;  // a role of dsworker such as `generate`, whose words after the
                       // model are `arguments`; empty: train
    std::optional<double> timeout_s;    // the longest that a rank waits for another one; nullopt:
                                        // dsworker's default
    std::string autotuning;             // tune or run; empty: not given
    std::string resume;                 // "auto", "best" or a folder of checkpoints; empty: from 0
    bool new_data = false;              // --new-data, with `resume`
    std::string expect_sha256;          // lower case
    std::string first_training_option;  // "--steps"; empty: none was given
};

// The options for what is printed, and for the end of a job.
struct ReportOptions {
    bool dry_run = false;
    bool json = false;
    bool help = false;
    bool help_all = false;  // --all, with `help`
    bool version = false;
    launch::LogSettings log;
    double grace_s = 30.0;
    std::string job_id;
};

// All options of a command line.
struct RunOptions : HostOptions,
                    TransportOptions,
                    MeetingOptions,
                    ProgramOptions,
                    FileOptions,
                    TrainingOptions,
                    ReportOptions {};

// The role of dsworker that serves requests until it is asked to end.
inline constexpr std::string_view kServeRole = "serve";

// Returns kModel for .pt, .pt2 and a folder with config.json, kPython for .py and --module, and
// kProgram for everything else.
[[nodiscard]] launch::TargetKind target_kind_of(const RunOptions& options);

}  // namespace dslaunch::launcher
