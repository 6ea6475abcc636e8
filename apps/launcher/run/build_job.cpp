#include "launcher/run/build_job.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <random>

#include "base/error.h"
#include "base/fd.h"
#include "base/screen.h"
#include "base/text.h"
#include "launch/jobs/job_record.h"
#include "launch/machine/elf_needs.h"
#include "launch/machine/gpu_use.h"
#include "launch/plan/environment_file.h"
#include "launch/plan/join_token.h"
#include "launch/plan/launch_plan.h"
#include "launch/process/spawn.h"
#include "launch/process/standard_streams.h"
#include "launcher/run/host_source.h"
#include "launcher/run/training_job_checks.h"

namespace dslaunch::launcher {
namespace {

constexpr size_t kEnvironmentFileBytesMax = 1U << 20;
// srun and mpirun may wait for a busy controller; pods and people may start agents much later.
constexpr std::chrono::seconds kSrunMax{60};
constexpr std::chrono::seconds kJoinMax{300};

std::string absolute(const std::string& path, const std::string& directory) {
    return (std::filesystem::path(directory) / path).lexically_normal().string();
}

// 32 * WORDS random bits in hex.
std::string random_id(int words) {
    std::random_device device;
    std::string id;
    for (int i = 0; i < words; ++i) id += fmt::format("{:08x}", device());
    return id;
}

class Builder {
  public:
    Builder(const RunOptions& options, const Machine& machine)
        : options_(options), machine_(machine) {}

    BuiltJob build();

  private:
    void choose_hosts();
    void choose_visible_devices();
    [[nodiscard]] std::vector<launch::Host> read_hostfile() const;
    [[nodiscard]] launch::Host this_machine() const;
    void choose_transport();
    void check_meeting();
    void check_launcher_args() const;
    void note_unused_options();
    void choose_device(launch::PlanRequest& request);
    void write_command(launch::PlanRequest& request);
    void write_training_options(launch::PlanRequest& request) const;
    [[nodiscard]] std::string resume_argument() const;
    void require_script();
    void require_libraries();
    void write_environment();
    void check_threads() const;
    void plan_nodes(launch::PlanRequest request);
    void check_way() const;
    void check_ssh_options() const;
    [[nodiscard]] std::optional<launch::NodeRange> elastic_range() const;
    void append_file(const std::string& path);
    void note(std::string text) { job_.notes.push_back(std::move(text)); }

    const RunOptions& options_;
    const Machine& machine_;
    BuiltJob job_;
    std::vector<launch::HostSlots> hosts_;
    HostSource source_ = HostSource::kThisMachine;
    std::optional<std::string> visible_;  // CUDA_VISIBLE_DEVICES, where it counts
};

// Beside --include and --exclude slots are the numbers of the machine's GPUs, as under deepspeed.
void Builder::choose_visible_devices() {
    visible_ = machine_.variable("CUDA_VISIBLE_DEVICES");
    const bool named = !options_.filter.include.empty() || !options_.filter.exclude.empty();
    if (!visible_ || !named || source_ != HostSource::kThisMachine ||
        launch::visible_device_list(visible_, 0).empty())
        return;
    note(
        fmt::format("CUDA_VISIBLE_DEVICES={} is ignored beside --{}, as by deepspeed: slots are "
                    "the numbers of this machine's GPUs",
                    *visible_, options_.filter.include.empty() ? "exclude" : "include"));
    visible_.reset();
}

void Builder::choose_hosts() {
    source_ = choose_host_source(options_, machine_);
    choose_visible_devices();
    std::vector<launch::Host> hosts;
    if (source_ == HostSource::kSlurm) {
        hosts = slurm_hosts(options_, machine_, job_.notes);
    } else if (source_ == HostSource::kMpi) {
        hosts = machine_.joining.hosts;
        int slots = 0;
        for (const launch::Host& host : hosts) slots += host.slots;
        note(fmt::format("mpirun: {} hosts, {} slots", hosts.size(), slots));
    } else if (source_ == HostSource::kThisMachine) {
        hosts.push_back(this_machine());
    } else if (source_ == HostSource::kJoin && options_.hostfile.empty()) {
        hosts = joining_hosts(options_, job_.notes);
    } else if (!options_.hostfile.empty()) {
        hosts = read_hostfile();
    } else if (options_.host_list.empty()) {
        note(fmt::format("using {}, as deepspeed does; give --standalone for this machine alone",
                         machine_.default_hostfile));
        hosts = launch::read_hostfile(machine_.default_hostfile);
    }
    hosts_ = launch::apply_filter(listed_hosts(options_, std::move(hosts)), options_.filter);
}

std::vector<launch::Host> Builder::read_hostfile() const {
    const std::string& name = options_.hostfile;
    const std::string path = absolute(name, machine_.directory);
    if (name.find_first_of(",:") != std::string::npos && access(path.c_str(), F_OK) != 0)
        fail(ExitCode::kUsage,
             "--hostfile {}: there is no such file; a list of hosts stands in a file, one host a "
             "line, as `node1 slots=4`",
             printable(name));
    return launch::read_hostfile(path);
}

launch::Host Builder::this_machine() const {
    const launch::HostFilter& filter = options_.filter;
    if (filter.num_nodes.value_or(1) != 1) {
        fail(ExitCode::kUsage, "--num_nodes {} needs a --hostfile that names the hosts",
             *filter.num_nodes);
    }
    const bool cpu = launch::resolve_local_device(options_.device, machine_.gpu_count, visible_) ==
                     launch::DeviceRequest::kCpu;
    launch::Host host;
    host.name = "localhost";
    host.slots = static_cast<int>(launch::visible_device_list(visible_, machine_.gpu_count).size());
    if (cpu)
        host.slots =
            std::max(filter.num_gpus.value_or(1), launch::named_slots(filter.include, host.name));
    if (host.slots == 0)
        fail(ExitCode::kSetup, "--{}: this machine shows no GPU (looked for {}); {}",
             options_.gpu_each ? "nproc_per_node gpu" : "device cuda", launch::kGpuDevicePattern,
             options_.gpu_each ? "give a number of CPU workers" : "use --device cpu");
    return host;
}

void Builder::choose_transport() {
    const std::string& launcher = options_.launcher;
    const bool named = source_ != HostSource::kThisMachine;
    const bool all_local =
        std::all_of(hosts_.begin(), hosts_.end(), [&](const launch::HostSlots& entry) {
            return launch::is_this_machine(entry.host.name, machine_.host_name);
        });
    const bool stays = all_local && !options_.force_multi && launcher != "slurm";
    const bool local = launcher == "local" || (!named && !options_.force_multi) ||
                       (stays && source_ != HostSource::kJoin && source_ != HostSource::kMpi);
    launch::JobSpec& spec = job_.spec;
    spec.connect_max = options_.connect_timeout.value_or(spec.connect_max);
    if (source_ == HostSource::kJoin) {
        spec.transport = launch::TransportKind::kJoin;
        spec.listen = listen_text(options_);
        spec.serves_node_0 = options_.no_ssh;
        if (options_.no_ssh) spec.master_port = 0;  // the agents connect to the port that was named
        spec.connect_max = options_.connect_timeout.value_or(kJoinMax);
    } else if (source_ == HostSource::kMpi) {
        spec.transport = launch::TransportKind::kJoin;
        spec.listen = machine_.joining.listen;
        spec.serves_node_0 = true;
        spec.connect_max = options_.connect_timeout.value_or(kSrunMax);
    } else if (local) {
        spec.transport = launch::TransportKind::kLocal;
        note_unused_options();
    } else if (launcher == "slurm" || (launcher.empty() && source_ == HostSource::kSlurm)) {
        spec.transport = launch::TransportKind::kSlurm;
        spec.connect_max = options_.connect_timeout.value_or(kSrunMax);
    } else {
        spec.transport = launcher == "openssh"   ? launch::TransportKind::kOpenSsh
                         : launcher == "pdsh"    ? launch::TransportKind::kPdsh
                         : launcher == "openmpi" ? launch::TransportKind::kOpenMpi
                                                 : launch::TransportKind::kSsh;
    }
    spec.launcher_args = options_.launcher_args;
    check_launcher_args();
    // Simulated hosts are all on this machine, so a tree would not help.
    spec.fanout = options_.fanout.value_or(local ? 0 : launch::kDefaultFanout);
    for (launch::HostSlots& entry : hosts_) {
        if (entry.host.port == 0) entry.host.port = options_.ssh_port;
    }
}

// torchrun's endpoint is where its launchers meet, on any node of Slurm's; ranks meet on the first.
void Builder::check_meeting() {
    launch::JobSpec& spec = job_.spec;
    if (source_ != HostSource::kSlurm || !is_later_host(hosts_, spec.master_address)) return;
    note(fmt::format("the ranks meet on the first host, not on {}", spec.master_address));
    spec.master_address.clear();
    spec.master_port = 0;
}

// Checks launcher_args: some transports ignore them, and ssh may get no forwarding, host or
// command.
void Builder::check_launcher_args() const {
    const std::vector<std::string>& words = options_.launcher_args;
    const launch::TransportKind transport = job_.spec.transport;
    if (words.empty() || transport == launch::TransportKind::kLocal) return;
    if (transport == launch::TransportKind::kSsh || transport == launch::TransportKind::kJoin) {
        fail(ExitCode::kUsage,
             "--launcher_args: {}; give --launcher openssh, pdsh, openmpi or slurm with it, or put "
             "ssh options into a file and name it with --ssh_config",
             transport == launch::TransportKind::kSsh ? "the built-in ssh takes no arguments"
                                                      : "agents that join are started by others");
    }
    if (transport != launch::TransportKind::kOpenSsh) return;
    for (size_t i = 0; i < words.size(); ++i) {
        const bool pair = words[i] == "-o" && i + 1 < words.size();
        const std::string option = pair                         ? words[++i]
                                   : words[i].starts_with("-o") ? words[i].substr(2)
                                                                : "";
        if (option.find('=') != std::string::npos) continue;
        fail(ExitCode::kUsage,
             "--launcher_args: `{}` is not `-o NAME=VALUE`, all that ssh is given",
             printable(words[i]));
    }
}

// Notes options that only matter for other hosts: they are not mistakes here, but have no effect.
void Builder::note_unused_options() {
    std::vector<std::string> unused;
    if (!options_.launcher.empty() && options_.launcher != "local")
        unused.push_back("--launcher " + options_.launcher);
    if (!options_.launcher_args.empty()) unused.emplace_back("--launcher_args");
    if (options_.ssh_port != 0) unused.emplace_back("--ssh_port");
    if (!options_.ssh_config.empty()) unused.emplace_back("--ssh_config");
    if (!options_.check_hosts) unused.emplace_back("--no_ssh_check");
    if (options_.verify) unused.emplace_back("--verify");
    if (options_.push) unused.emplace_back("--push");
    if (unused.empty()) return;
    note(fmt::format("{} without effect: every host is this machine, no ssh is used ({})",
                     join(unused, ", "),
                     source_ == HostSource::kThisMachine ? "--hostfile names others"
                                                         : "--force_multi would use it"));
}

void Builder::choose_device(launch::PlanRequest& request) {
    request.local = job_.spec.transport == launch::TransportKind::kLocal;
    request.gpu_count = machine_.gpu_count;
    request.visible_devices = visible_;
    request.device = options_.device;
    job_.spec.device = options_.device;
    if (!request.local || options_.device == launch::DeviceRequest::kCpu) return;
    job_.spec.device =
        launch::resolve_local_device(options_.device, machine_.gpu_count, request.visible_devices);
    // On a machine without GPU the plan gets kAuto, so that it keeps the devices of gpus= and
    // checks nothing.
    request.device = job_.spec.device == launch::DeviceRequest::kCpu ? launch::DeviceRequest::kAuto
                                                                     : launch::DeviceRequest::kCuda;
    if (job_.spec.device == launch::DeviceRequest::kCpu)
        note("this machine shows no GPU: every worker runs on the CPU");
}

void Builder::write_command(launch::PlanRequest& request) {
    const launch::TargetKind kind = target_kind_of(options_);
    job_.spec.target_kind = kind;
    job_.spec.target = options_.target;
    if (kind == launch::TargetKind::kPython) {
        const std::string python = machine_.python();
        request.command_head = {python, "-u"};
        if (python.starts_with('/')) job_.spec.interpreter = python;
        if (options_.module) request.command_head.emplace_back("-m");
        require_script();
    }
    const std::string worker = machine_.binary_directory + "/dsworker";
    if (kind == launch::TargetKind::kModel)
        request.command_head = {worker, options_.role.empty() ? "train" : options_.role};
    request.command_head.push_back(options_.target);
    request.append_local_rank =
        (kind == launch::TargetKind::kPython || options_.no_python) && !options_.no_local_rank;
    request.command_tail = options_.arguments;
    if (kind != launch::TargetKind::kModel) return;
    if (options_.role.empty()) write_training_options(request);
    job_.spec.required_files = {worker, absolute(options_.target, job_.spec.working_directory)};
    if (job_.spec.transport != launch::TransportKind::kLocal && options_.check_hosts)
        require_libraries();
    if (!options_.config.empty()) {
        job_.spec.required_files.push_back(absolute(options_.config, job_.spec.working_directory));
    }
}

void Builder::write_training_options(launch::PlanRequest& request) const {
    const auto add = [&](const std::string& name, const std::string& value) {
        if (!value.empty()) request.command_tail.push_back(fmt::format("--{}={}", name, value));
    };
    add("config", options_.config);
    for (const std::string& entry : options_.set) add("set", entry);
    for (const auto& entry : begun_of(options_, job_.spec.output_directory)) add("begun", entry);
    if (options_.device_given && options_.device != launch::DeviceRequest::kAuto) {
        add("set", fmt::format("dslaunch.device=\"{}\"",
                               options_.device == launch::DeviceRequest::kCpu ? "cpu" : "cuda"));
    }
    add("output", job_.spec.output_directory);
    add("expect-sha256", options_.expect_sha256);
    add("resume", resume_argument());
    if (options_.trust_model) request.command_tail.emplace_back("--trust-model");
    if (options_.new_data) request.command_tail.emplace_back("--new-data");
    if (options_.verifies) request.command_tail.emplace_back("--verify");
    add("scratch", options_.scratch.empty() ? "" : absolute(options_.scratch, machine_.directory));
    if (options_.timeout_s) add("timeout", fmt::format("{}", *options_.timeout_s));
}

// Returns the --resume argument of dsworker, with a folder as an absolute path.
std::string Builder::resume_argument() const {
    if (options_.resume.empty()) return "";
    if (options_.resume != "auto") return absolute(options_.resume, machine_.directory);
    if (options_.output.empty())
        fail(ExitCode::kUsage,
             "--resume: it looks for the newest checkpoint below --output, which is not given; add "
             "--output DIR, or name the folder: --resume=DIR");
    return options_.resume;
}

// Requires the script if this machine has it: a host's different or missing one is found before the
// start. The hosts may have one that this machine lacks.
void Builder::require_script() {
    if (options_.module) return;
    const std::string path = absolute(options_.target, job_.spec.working_directory);
    if (access(path.c_str(), F_OK) == 0) job_.spec.required_files.push_back(path);
}

// Requires the libraries too, for LibTorch is as much a part of the program as dsworker itself.
void Builder::require_libraries() {
    auto& files = job_.spec.required_files;
    const std::string plugin = machine_.binary_directory + "/libdsl_cuda.so";
    std::vector<std::string> programs = {files.front()};
    const bool cuda = options_.device != launch::DeviceRequest::kCpu;
    if (cuda && access(plugin.c_str(), F_OK) == 0) programs.push_back(plugin);
    for (const std::string& program : programs) {
        if (access(program.c_str(), R_OK) != 0) continue;  // reported when it is started
        if (program == plugin) files.push_back(plugin);
        for (const std::string& library : launch::own_libraries(program)) {
            if (std::find(files.begin(), files.end(), library) == files.end()) {
                files.push_back(library);
            }
        }
    }
}

void Builder::append_file(const std::string& path) {
    std::string text;
    try {
        text = read_file(path, kEnvironmentFileBytesMax);
    } catch (const Error& error) {
        fail(ExitCode::kUsage, "environment file {}", error.what());
    }
    const launch::EnvironmentFile file = launch::parse_environment_file(text, path);
    launch::EnvironmentRules& rules = job_.spec.environment;
    for (const int64_t place : file.expanded)
        rules.expanded.push_back(std::ssize(rules.set) + place);
    rules.set.insert(rules.set.end(), file.variables.begin(), file.variables.end());
}

void Builder::write_environment() {
    launch::EnvironmentRules& rules = job_.spec.environment;
    const launch::TransportKind transport = job_.spec.transport;
    // An agent that srun started has all of this environment; an agent that connects by itself has
    // its container's environment, which is meant for the workers.
    rules.inherit_all = transport == launch::TransportKind::kLocal ||
                        transport == launch::TransportKind::kSlurm ||
                        transport == launch::TransportKind::kJoin;
    const std::string level = options_.log.quiet ? "warn" : options_.log.level;
    if (job_.spec.target_kind == launch::TargetKind::kModel && level != "info") {
        rules.set.emplace_back(launch::kLogLevelVariable, level);
    }
    if (transport != launch::TransportKind::kLocal) {
        for (const auto& [name, value] : machine_.environment) {
            // srun passes the variables on; those that name a network interface must be known here.
            if (transport == launch::TransportKind::kSlurm && !name.ends_with("_SOCKET_IFNAME"))
                continue;
            if (launch::has_forwarded_prefix(name)) rules.set.emplace_back(name, value);
        }
        // Scripts import what lies beside them on every host, as under deepspeed. An agent that
        // comes by itself has its container's own paths.
        if (job_.spec.target_kind != launch::TargetKind::kModel &&
            transport != launch::TransportKind::kJoin) {
            const std::string before = machine_.variable("PYTHONPATH").value_or("");
            launch::set_variable(
                rules.set, "PYTHONPATH",
                job_.spec.working_directory + (before.empty() ? "" : ":" + before));
        }
        for (const std::string& directory :
             {machine_.variable("HOME").value_or(""), machine_.directory}) {
            const std::string path =
                directory + "/" + machine_.variable("DS_ENV_FILE").value_or(".deepspeed_env");
            if (!directory.empty() && access(path.c_str(), F_OK) == 0) append_file(path);
        }
    }
    for (const std::string& path : options_.env_files)
        append_file(absolute(path, machine_.directory));
    for (const std::string& entry : options_.env) {
        const size_t equals = entry.find('=');
        const std::string name = entry.substr(0, equals);
        if (!launch::is_variable_name(name))
            fail(ExitCode::kUsage, "--env: `{}` is not a variable name", name);
        if (name == launch::kTokenVariable)
            fail(ExitCode::kUsage, "--env: {} is dslaunch's own secret and goes to no worker",
                 name);
        if (launch::is_rank_variable(name))
            fail(ExitCode::kUsage, "--env: {} is set by dslaunch for each rank", name);
        const auto value =
            equals == std::string::npos ? machine_.variable(name) : entry.substr(equals + 1);
        if (!value)
            fail(ExitCode::kUsage, "--env {}: not set here; write --env {}=VALUE", name, name);
        rules.set.emplace_back(name, *value);
    }
}

// Checks the threads: OpenMP would skip what is not a list of numbers, and choose for itself.
void Builder::check_threads() const {
    constexpr const char* kName = "OMP_NUM_THREADS";
    if (job_.spec.target_kind != launch::TargetKind::kModel) return;
    const std::string* chosen = launch::find_variable(job_.spec.environment.set, kName);
    if (chosen != nullptr && chosen->find('$') != chosen->npos) return;  // the host's own value
    const std::string value = chosen != nullptr ? *chosen
                              : job_.spec.environment.inherit_all
                                  ? machine_.variable(kName).value_or("1")
                                  : "1";
    for (const std::string& level : split(value, ',')) {
        const auto threads = parse_int(trim(level));
        if (!threads || *threads < 1)
            fail(ExitCode::kUsage,
                 "{}={}: `{}` is not a number of threads; set one, or unset the variable", kName,
                 printable(value), printable(level));
    }
}

// Returns the least and the largest number of hosts in an attempt; nullopt: all of them.
std::optional<launch::NodeRange> Builder::elastic_range() const {
    const bool deepspeed = options_.elastic_training;
    const auto hosts = static_cast<int>(hosts_.size());
    if (!deepspeed && (options_.elastic_nodes_min || options_.elastic_nodes_max))
        fail(ExitCode::kUsage,
             "--min_elastic_nodes and --max_elastic_nodes need --elastic_training");
    if (deepspeed && options_.nodes)
        fail(ExitCode::kUsage, "--elastic_training and --nnodes MIN:MAX exclude each other");
    if (!deepspeed && !options_.nodes) return std::nullopt;
    if (options_.filter.num_nodes)
        fail(ExitCode::kUsage, "--num_nodes and an elastic number of nodes exclude each other");
    const launch::NodeRange wanted =
        deepspeed ? launch::NodeRange{options_.elastic_nodes_min.value_or(1),
                                      options_.elastic_nodes_max.value_or(
                                          std::max(hosts, options_.elastic_nodes_min.value_or(1)))}
                  : *options_.nodes;
    if (wanted.min > wanted.max)
        fail(ExitCode::kUsage, "--min_elastic_nodes {} is more than --max_elastic_nodes {}",
             wanted.min, wanted.max);
    const bool named = source_ == HostSource::kHostfile || source_ == HostSource::kSlurm;
    if (wanted.max > 1 && !named)
        fail(ExitCode::kUsage,
             "an elastic number of nodes up to {} needs a --hostfile or a Slurm allocation that "
             "names the hosts",
             wanted.max);
    if (wanted.min > hosts)
        fail(ExitCode::kUsage, "at least {} hosts are asked for, there are {}", wanted.min, hosts);
    return launch::NodeRange{wanted.min, std::min(wanted.max, hosts)};
}

void Builder::plan_nodes(launch::PlanRequest request) {
    launch::JobSpec& spec = job_.spec;
    request.max_restarts = spec.max_restarts;
    if (const auto range = elastic_range()) {
        spec.elastic.nodes = *range;
        for (const launch::HostSlots& entry : hosts_) spec.elastic.hosts.push_back(entry.host.name);
        spec.elastic.plan = [request](const std::vector<size_t>& chosen) {
            launch::PlanRequest smaller = request;
            smaller.hosts.clear();
            for (const size_t index : chosen) smaller.hosts.push_back(request.hosts.at(index));
            return launch::make_launch_plan(smaller);
        };
        request.hosts.resize(static_cast<size_t>(range->max));
    }
    spec.nodes = launch::make_launch_plan(request);
    spec.world_size = spec.nodes.front().workers.front().environment.world_size;
}

// Refuses options of ssh if this job does not use ssh.
void Builder::check_ssh_options() const {
    const launch::TransportKind transport = job_.spec.transport;
    const bool calls_back =
        transport == launch::TransportKind::kJoin || transport == launch::TransportKind::kSlurm;
    const bool one_starter =
        transport == launch::TransportKind::kPdsh || transport == launch::TransportKind::kOpenMpi;
    const auto refuse = [&](bool given, const char* option, const char* why) {
        if (given) fail(ExitCode::kUsage, "{} has no effect here: {}; leave it out", option, why);
    };
    constexpr const char* kNoSsh = "no ssh is used, the agents call back";
    refuse(calls_back && options_.ssh_port != 0, "--ssh_port", kNoSsh);
    refuse(calls_back && !options_.ssh_config.empty(), "--ssh_config", kNoSsh);
    const bool tree = options_.fanout.value_or(0) > 0;
    refuse(calls_back && tree, "--fanout", kNoSsh);
    refuse(one_starter && tree, "--fanout", "pdsh and mpirun start all agents themselves");
    refuse(transport == launch::TransportKind::kOpenSsh && tree && !options_.launcher_args.empty(),
           "--fanout", "with --launcher_args every host is reached from here");
}

// Refuses options that the way to the hosts cannot have, before anything is started.
void Builder::check_way() const {
    check_ssh_options();
    const launch::TransportKind transport = job_.spec.transport;
    const bool by_ssh =
        transport == launch::TransportKind::kSsh || transport == launch::TransportKind::kOpenSsh;
    if (source_ == HostSource::kMpi && job_.spec.max_restarts > 0) {
        fail(ExitCode::kUsage,
             "--max_restarts: mpirun ends all its copies when one fails; give --launcher openmpi "
             "without mpirun, or start the job again from outside");
    }
    if (job_.spec.elastic.on() && (transport == launch::TransportKind::kSlurm ||
                                   transport == launch::TransportKind::kOpenMpi)) {
        fail(ExitCode::kUsage,
             "an elastic number of nodes needs agents that start one by one, and srun and mpirun "
             "start all or none; give --launcher ssh and a --hostfile");
    }
    if (options_.push && !by_ssh && transport != launch::TransportKind::kLocal) {
        fail(ExitCode::kUsage,
             "--push goes over ssh: give --launcher ssh or openssh, or run `dslaunch push` before");
    }
}

BuiltJob Builder::build() {
    launch::JobSpec& spec = job_.spec;
    spec.working_directory = options_.working_directory.empty()
                                 ? machine_.directory
                                 : absolute(options_.working_directory, machine_.directory);
    if (!options_.output.empty())
        spec.output_directory = absolute(options_.output, machine_.directory);
    spec.bring_bytes_max = options_.bring_bytes_max.value_or(spec.bring_bytes_max);
    spec.log = options_.log;
    if (!spec.log.each_rank_directory.empty()) {
        spec.log.each_rank_directory = absolute(spec.log.each_rank_directory, machine_.directory);
    }
    spec.grace = std::chrono::milliseconds(static_cast<int64_t>(options_.grace_s * 1000.0));
    if (!options_.role.empty())
        spec.duty =
            options_.role == kServeRole ? launch::ModelDuty::kServe : launch::ModelDuty::kWrite;
    spec.ssh_config_path = options_.ssh_config.empty()
                               ? machine_.variable("DSLAUNCH_SSH_CONFIG").value_or("")
                               : absolute(options_.ssh_config, machine_.directory);
    spec.job_id = options_.job_id.empty() ? random_id(2) : options_.job_id;
    spec.launch_id = random_id(4);
    // The number of restarts of deepspeed's elastic agent.
    constexpr int kElasticRestarts = 100;
    spec.max_restarts =
        options_.max_restarts.value_or(options_.elastic_training ? kElasticRestarts : 0);
    spec.state_directory = launch::state_directory(machine_.environment);
    spec.master_port = options_.master_port;
    spec.master_address = options_.master_address;
    spec.verify_all_bytes = options_.verify;
    spec.check_hosts = options_.check_hosts;
    spec.binding = options_.binding;
    if (spec.binding.mode == launch::BindMode::kAuto && !spec.binding.core_list.empty()) {
        spec.binding.mode = launch::BindMode::kCore;
    }
    choose_hosts();
    choose_transport();
    check_meeting();
    launch::PlanRequest request;
    request.hosts = hosts_;
    request.master_address = spec.master_address;
    request.master_port = spec.master_port;
    request.job_id = spec.job_id;
    request.launch_id = spec.launch_id;
    choose_device(request);
    write_command(request);
    write_environment();
    check_threads();
    plan_nodes(std::move(request));
    check_way();
    return std::move(job_);
}

}  // namespace

BuiltJob build_job(const RunOptions& options, const Machine& machine) {
    return Builder(options, machine).build();
}

void print_notes(const BuiltJob& job, const RunOptions& options) {
    if (options.log.quiet || job.notes.empty()) return;
    std::string text;
    for (const std::string& note : job.notes)
        text += fmt::format("dslaunch: {}\n", printable_lines(note, 0));
    launch::write_last_words(fitted(text, 2));
}

}  // namespace dslaunch::launcher
