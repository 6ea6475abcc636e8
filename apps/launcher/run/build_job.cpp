#include "launcher/run/build_job.h"

#include <unistd.h>

#include <algorithm>
#include <random>

#include "base/error.h"
#include "base/screen.h"
#include "base/text.h"
#include "launch/jobs/job_record.h"
#include "launch/machine/gpu_use.h"
#include "launch/plan/launch_plan.h"
#include "launch/plan/worker_environment.h"
#include "launch/process/spawn.h"
#include "launch/process/standard_streams.h"
#include "launcher/run/host_source.h"
#include "launcher/run/job_command.h"
#include "launcher/run/job_environment.h"
#include "launcher/run/job_transport.h"

namespace dslaunch::launcher {
namespace {

// Returns 32 * WORDS random bits in hex.
std::string random_id(int words) {
    std::random_device device;
    std::string id;
    for (int i = 0; i < words; ++i) id += fmt::format("{:08x}", device());
    return id;
}

// Builds one job. The functions are called once, in the order of build().
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
    [[nodiscard]] bool is_cpu() const;  // this machine's workers run on the CPU
    void require_worker_slots() const;
    void note_same_machine();
    void check_meeting();
    void choose_device(launch::PlanRequest& request);
    void plan_nodes(launch::PlanRequest request);
    [[nodiscard]] std::optional<launch::NodeCounts> elastic_range() const;
    void note(std::string text) { job_.notes.push_back(std::move(text)); }

    const RunOptions& options_;
    const Machine& machine_;
    BuiltJob job_;
    std::vector<launch::HostSlots> hosts_;
    HostSource source_ = HostSource::kThisMachine;
    std::optional<std::string> visible_;  // CUDA_VISIBLE_DEVICES, if it applies
};

// Reads CUDA_VISIBLE_DEVICES. The variable is ignored if --include or --exclude is given, because
// slots are then the numbers of the machine's GPUs, as under deepspeed.
void Builder::choose_visible_devices() {
    visible_ = machine_.variable(launch::kDevicesVariable);
    const bool named = !options_.filter.include.empty() || !options_.filter.exclude.empty();
    if (!visible_ || !named || source_ != HostSource::kThisMachine ||
        launch::visible_device_list(visible_, 0).empty())
        return;
    note(
        fmt::format("CUDA_VISIBLE_DEVICES={} is ignored because --{} is given, as with deepspeed: "
                    "slots are the numbers of this machine's GPUs",
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
        note(fmt::format("mpirun started dslaunch on {} hosts with {} slots", hosts.size(), slots));
    } else if (source_ == HostSource::kThisMachine) {
        hosts.push_back(this_machine());
    } else if (source_ == HostSource::kJoin && options_.hostfile.empty()) {
        hosts = joining_hosts(options_, job_.notes);
    } else if (!options_.hostfile.empty()) {
        hosts = read_hostfile();
    } else if (options_.host_list.empty()) {
        note(fmt::format(
            "using the hostfile {}, as deepspeed does; give --standalone to use only this machine",
            machine_.default_hostfile));
        hosts = launch::read_hostfile(machine_.default_hostfile);
    }
    hosts_ = launch::apply_filter(listed_hosts(options_, std::move(hosts)), options_.filter);
    if (source_ == HostSource::kThisMachine && is_cpu() && !options_.filter.include.empty())
        require_worker_slots();
    if (source_ == HostSource::kHostfile && !options_.force_multi) note_same_machine();
}

// Adds a note if several of the hosts are names of this machine.
void Builder::note_same_machine() {
    std::vector<std::string> names;
    size_t slots = 0;
    for (const launch::HostSlots& entry : hosts_) {
        if (!entry.host.address.empty() ||
            !launch::is_this_machine(entry.host.name, machine_.host_name))
            continue;
        names.push_back(entry.host.name);
        slots += entry.slots.size();
    }
    if (names.size() < 2) return;
    note(
        fmt::format("{} are names of this machine, so their workers share its processors and GPUs; "
                    "for a single host, write one line with all slots: `{} slots={}`",
                    join(names, " and "), names.front(), slots));
}

// Refuses an --include that skips slots of this machine, for example an --include of slot 3 alone.
// The user means numbers of GPUs, but here each slot is only a further worker on the CPU.
void Builder::require_worker_slots() const {
    const std::vector<int>& slots = hosts_.front().slots;
    if (slots.back() + 1 == std::ssize(slots)) return;
    fail(ExitCode::kUsage,
         "--include `{0}`: localhost has no slot {1}: {2}, so slots are CPU workers with numbers "
         "from 0; for one worker give localhost:0, for two workers localhost:0,1",
         printable(options_.filter.include), slots.back(),
         machine_.gpu_count == 0 ? "this machine has no GPU" : "no GPU is used");
}

bool Builder::is_cpu() const {
    return launch::resolve_local_device(options_.device, machine_.gpu_count, visible_) ==
           launch::DeviceRequest::kCpu;
}

std::vector<launch::Host> Builder::read_hostfile() const {
    const std::string& name = options_.hostfile;
    const std::string path = resolved_path(name, machine_.directory);
    if (name.find_first_of(",:") != std::string::npos && access(path.c_str(), F_OK) != 0)
        fail(ExitCode::kUsage,
             "--hostfile {}: this file does not exist; write the hosts into a file, one per line, "
             "such as `node1 slots=4`",
             printable(name));
    return launch::read_hostfile(path);
}

launch::Host Builder::this_machine() const {
    const launch::HostFilter& filter = options_.filter;
    if (filter.num_nodes.value_or(1) != 1) {
        fail(ExitCode::kUsage, "--num_nodes {} needs a --hostfile that names the hosts",
             *filter.num_nodes);
    }
    launch::Host host;
    host.name = "localhost";
    host.slots = static_cast<int>(launch::visible_device_list(visible_, machine_.gpu_count).size());
    if (is_cpu())
        host.slots =
            std::max(filter.num_gpus.value_or(1), launch::named_slots(filter.include, host.name));
    if (host.slots == 0)
        fail(ExitCode::kSetup, "--{}: found no GPU on this machine (looked for {}); {}",
             options_.gpu_each ? "nproc_per_node gpu" : "device cuda", launch::kGpuDevicePattern,
             options_.gpu_each ? "give a number of CPU workers" : "use --device cpu");
    return host;
}

// Corrects the address at which ranks meet: torchrun's endpoint may be on any of Slurm's nodes, but
// the ranks of this job meet on the first node.
void Builder::check_meeting() {
    launch::JobSpec& spec = job_.spec;
    if (source_ != HostSource::kSlurm || !is_later_host(hosts_, spec.master_address)) return;
    note(fmt::format("the ranks always meet on the first host, so the address {} is ignored",
                     spec.master_address));
    spec.master_address.clear();
    spec.master_port = 0;
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
    // If there is no GPU, workers run on the CPU. With kAuto, the plan does not check the devices
    // that gpus= names in the hostfile.
    request.device = job_.spec.device == launch::DeviceRequest::kCpu ? launch::DeviceRequest::kAuto
                                                                     : launch::DeviceRequest::kCuda;
    if (job_.spec.device == launch::DeviceRequest::kCpu)
        note("found no GPU on this machine: every worker runs on the CPU");
}

// Returns the smallest and the largest number of hosts in an attempt; nullopt if every attempt uses
// all hosts.
std::optional<launch::NodeCounts> Builder::elastic_range() const {
    const bool deepspeed = options_.elastic_training;
    const auto hosts = static_cast<int>(hosts_.size());
    if (!deepspeed && (options_.elastic_nodes_min || options_.elastic_nodes_max))
        fail(ExitCode::kUsage,
             "--min_elastic_nodes and --max_elastic_nodes need --elastic_training");
    if (deepspeed && options_.nodes)
        fail(ExitCode::kUsage, "--elastic_training and --nnodes MIN:MAX cannot be used together");
    if (!deepspeed && !options_.nodes) return std::nullopt;
    if (options_.filter.num_nodes)
        fail(ExitCode::kUsage,
             "--num_nodes cannot be used together with --elastic_training or --nnodes MIN:MAX");
    const launch::NodeCounts wanted =
        deepspeed ? launch::NodeCounts{options_.elastic_nodes_min.value_or(1),
                                       options_.elastic_nodes_max.value_or(
                                           std::max(hosts, options_.elastic_nodes_min.value_or(1)))}
                  : *options_.nodes;
    if (wanted.min > wanted.max)
        fail(ExitCode::kUsage, "--min_elastic_nodes {} is greater than --max_elastic_nodes {}",
             wanted.min, wanted.max);
    const bool named = source_ == HostSource::kHostfile || source_ == HostSource::kSlurm;
    if (wanted.max > 1 && !named)
        fail(ExitCode::kUsage,
             "an elastic job of up to {} nodes needs a --hostfile or a Slurm allocation that names "
             "the hosts",
             wanted.max);
    if (wanted.min > hosts)
        fail(ExitCode::kUsage, "the job needs at least {} hosts, but there are only {}", wanted.min,
             hosts);
    return launch::NodeCounts{wanted.min, std::min(wanted.max, hosts)};
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
    spec.world_size = launch::world_size_of(spec.nodes);
}

BuiltJob Builder::build() {
    launch::JobSpec& spec = job_.spec;
    spec.working_directory = options_.working_directory.empty()
                                 ? machine_.directory
                                 : resolved_path(options_.working_directory, machine_.directory);
    if (!options_.output.empty())
        spec.output_directory = resolved_path(options_.output, machine_.directory);
    spec.bring_bytes_max = options_.bring_bytes_max.value_or(spec.bring_bytes_max);
    spec.log = options_.log;
    if (!spec.log.each_rank_directory.empty()) {
        spec.log.each_rank_directory =
            resolved_path(spec.log.each_rank_directory, machine_.directory);
    }
    spec.grace = std::chrono::milliseconds(static_cast<int64_t>(options_.grace_s * 1000.0));
    if (!options_.role.empty())
        spec.duty =
            options_.role == kServeRole ? launch::ModelDuty::kServe : launch::ModelDuty::kWrite;
    spec.ssh_config_path = options_.ssh_config.empty()
                               ? machine_.variable("DSLAUNCH_SSH_CONFIG").value_or("")
                               : resolved_path(options_.ssh_config, machine_.directory);
    spec.job_id = options_.job_id.empty() ? random_id(2) : options_.job_id;
    spec.launch_id = random_id(4);
    // This is the number of restarts that deepspeed's elastic agent allows.
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
    for (std::string& text : choose_transport(options_, machine_, source_, hosts_, spec))
        note(std::move(text));
    check_meeting();
    launch::PlanRequest request;
    request.hosts = hosts_;
    request.master_address = spec.master_address;
    request.master_port = spec.master_port;
    request.job_id = spec.job_id;
    request.launch_id = spec.launch_id;
    choose_device(request);
    write_command(options_, machine_, spec, request);
    spec.environment = environment_of(options_, machine_, spec);
    plan_nodes(std::move(request));
    check_transport(options_, source_, spec);
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
