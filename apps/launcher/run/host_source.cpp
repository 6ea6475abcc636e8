#include "launcher/run/host_source.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "launch/machine/held_name.h"
#include "launch/supervise/job.h"

namespace dslaunch::launcher {
namespace {

using std::chrono::milliseconds;

constexpr int kDeepspeedPort = 29'500;

bool has_allocation(const Machine& machine) {
    return machine.variable("SLURM_JOB_ID") && machine.variable("SLURM_JOB_NODELIST");
}

// Returns the endpoint of a --no_ssh job: the address at which node 0 waits and the other nodes
// join.
launch::JoinEndpoint meeting_place(const RunOptions& options) {
    if (options.master_address.empty()) {
        fail(ExitCode::kUsage,
             "--no_ssh needs --master_addr, an address of node 0 that the other nodes can reach");
    }
    return launch::parse_join_endpoint(
        fmt::format("{}:{}", options.master_address,
                    options.master_port == 0 ? kDeepspeedPort : options.master_port));
}

void check_no_ssh(const RunOptions& options) {
    if (!options.launcher.empty()) {
        fail(ExitCode::kUsage, "--no_ssh and --launcher {} cannot be used together",
             options.launcher);
    }
    if (!options.listen.empty()) {
        fail(ExitCode::kUsage,
             "--no_ssh listens at --master_addr and --master_port; leave out --listen");
    }
    if (!options.node_rank && !options.joins) {
        fail(ExitCode::kUsage,
             "--no_ssh needs --node_rank on each node: 0 starts the job, the others join it");
    }
}

// Returns "a,te[1,3-5]x" as the lines of a hostfile: a, te1x, te[3-5]x.
std::string hostfile_of_list(const std::string& list, std::string_view after_name) {
    std::string lines;
    for (size_t at = 0; at < list.size();) {
        const size_t comma = list.find(',', at);
        const size_t open = list.find('[', at);
        const size_t close = open < comma ? list.find(']', open) : std::string::npos;
        const size_t end = close != std::string::npos ? std::min(list.find(',', close), list.size())
                                                      : std::min(comma, list.size());
        const std::string name = list.substr(at, end - at);
        at = end + 1;
        if (close == std::string::npos || name.find(':') != std::string::npos) {  // an IPv6 address
            lines += fmt::format("{}{}\n", name, after_name);
            continue;
        }
        const size_t first = name.find('[') + 1;
        const size_t last = name.find(']', first);
        for (const std::string& piece : split(name.substr(first, last - first), ',')) {
            const bool is_number = piece.find('-') == std::string::npos;
            lines += fmt::format("{}{}{}{}{}\n", name.substr(0, first - (is_number ? 1 : 0)), piece,
                                 is_number ? "" : "]", name.substr(last + 1), after_name);
        }
    }
    return lines;
}

std::vector<launch::Host> read_list(const std::string& list, const char* option) {
    return launch::parse_hostfile(hostfile_of_list(list, " slots=1"), option);
}

bool has_name(const std::vector<launch::Host>& hosts, const std::string& name) {
    return std::ranges::count(hosts, name, &launch::Host::name) > 0;
}

void require_names(const std::vector<launch::Host>& wanted, const std::vector<launch::Host>& hosts,
                   const char* option) {
    for (const launch::Host& host : wanted) {
        if (!has_name(hosts, host.name))
            fail(ExitCode::kUsage, "{} {}: this host is not in the list of hosts", option,
                 host.name);
    }
}

// srun itself may have to wait for a busy controller before it starts the agents.
constexpr milliseconds kAppearsMax{30'000};
constexpr milliseconds kReturnsMax{500};
// The pause before a restart is at most 30 s. After it, srun starts the agents again.
constexpr milliseconds kRestartsMax{60'000};

}  // namespace

std::vector<launch::Host> listed_hosts(const RunOptions& options, std::vector<launch::Host> hosts) {
    if (!options.host_list.empty()) {
        std::vector<launch::Host> wanted = read_list(options.host_list, "-w");
        if (hosts.empty()) {
            hosts = std::move(wanted);
        } else {
            require_names(wanted, hosts, "-w");
            std::erase_if(hosts, [&](const auto& host) { return !has_name(wanted, host.name); });
        }
    }
    if (!options.left_out_list.empty()) {
        const std::vector<launch::Host> left_out = read_list(options.left_out_list, "-x");
        require_names(left_out, hosts, "-x");
        std::erase_if(hosts, [&](const auto& host) { return has_name(left_out, host.name); });
        if (hosts.empty()) fail(ExitCode::kUsage, "-x {}: no host is left", options.left_out_list);
    }
    return hosts;
}

HostSource choose_host_source(const RunOptions& options, const Machine& machine) {
    if (!machine.joining.hosts.empty()) return HostSource::kMpi;
    if (options.no_ssh) {
        check_no_ssh(options);
        return HostSource::kJoin;
    }
    const bool join = options.launcher == "join";
    if (join && options.listen.empty()) {
        fail(
            ExitCode::kUsage,
            "--launcher join needs --listen ADDRESS:PORT, the address where agents reach this job");
    }
    if (!join && !options.listen.empty()) {
        fail(ExitCode::kUsage, "--listen is only for --launcher join");
    }
    if (join) return HostSource::kJoin;
    if (!options.token_file.empty()) {
        fail(ExitCode::kUsage, "--token_file is only for --launcher join and --no_ssh");
    }
    const bool allocation = has_allocation(machine);
    if (options.launcher == "slurm" && !allocation) {
        fail(ExitCode::kUsage,
             "--launcher slurm works only inside a Slurm allocation (salloc, sbatch), but "
             "SLURM_JOB_ID and SLURM_JOB_NODELIST are not set");
    }
    if (!options.hostfile.empty() || !options.host_list.empty()) return HostSource::kHostfile;
    if (options.standalone || options.launcher == "local") return HostSource::kThisMachine;
    if (allocation) return HostSource::kSlurm;
    return machine.default_hostfile.empty() ? HostSource::kThisMachine : HostSource::kHostfile;
}

launch::SlurmAllocation slurm_allocation(const RunOptions& options, const Machine& machine) {
    return *launch::find_slurm_allocation(machine.environment,
                                          options.device != launch::DeviceRequest::kCpu);
}

std::vector<launch::Host> slurm_hosts(const RunOptions& options, const Machine& machine,
                                      std::vector<std::string>& notes) {
    using Slots = launch::SlurmAllocation::Slots;
    launch::SlurmAllocation allocation = slurm_allocation(options, machine);
    const auto& asked = options.filter.num_gpus;
    int slots = 0, most = 0;
    for (launch::Host& host : allocation.hosts) {
        if (allocation.slots != Slots::kGpus)
            host.slots = std::max(asked.value_or(host.slots),
                                  launch::named_slots(options.filter.include, host.name));
        slots += host.slots;
        most = std::max(most, host.slots);
    }
    notes.push_back(fmt::format("Slurm job {}: {} hosts, {} slots", allocation.job_id,
                                allocation.hosts.size(), slots));
    if (allocation.slots == Slots::kUnknown && !asked) {
        notes.emplace_back(
            "Slurm reports neither GPUs nor tasks per node, so one worker per host is used; "
            "request --gpus-per-node or --ntasks-per-node from Slurm, or give dslaunch --num_gpus");
    } else if (allocation.slots == Slots::kTasks && !asked && most == 1) {
        notes.emplace_back(
            "one worker per host is used, since Slurm reports one task per node; give --num_gpus N "
            "to use N");
    }
    return std::move(allocation.hosts);
}

bool is_later_host(const std::vector<launch::HostSlots>& hosts, const std::string& name) {
    const auto found = std::ranges::find_if(
        hosts, [&](const launch::HostSlots& entry) { return entry.host.name == name; });
    return found != hosts.end() && found != hosts.begin();
}

std::vector<launch::Host> joining_hosts(const RunOptions& options,
                                        std::vector<std::string>& notes) {
    if (!options.filter.num_nodes) {
        fail(ExitCode::kUsage,
             "without a hostfile, give --nnodes N, the number of nodes that will join");
    }
    if (!options.filter.num_gpus) {
        notes.emplace_back("one worker per node is used; give --num_gpus for more");
    }
    std::vector<launch::Host> hosts;
    for (int i = 0; i < *options.filter.num_nodes; ++i) {
        hosts.emplace_back();
        hosts.back().name = fmt::format("node{}", i);
        hosts.back().slots = options.filter.num_gpus.value_or(1);
    }
    return hosts;
}

std::string listen_text(const RunOptions& options) {
    return options.no_ssh ? meeting_place(options).text() : options.listen;
}

void settle_meeting(RunOptions& options, const Machine& machine) {
    const bool names_hosts = !options.hostfile.empty() || !options.host_list.empty() ||
                             !options.launcher.empty() || has_allocation(machine) ||
                             !machine.joining.hosts.empty() || !machine.default_hostfile.empty();
    if (options.no_ssh || names_hosts || options.standalone || options.master_address.empty() ||
        options.filter.num_nodes.value_or(1) == 1) {
        return;
    }
    options.no_ssh = true;
    if (options.node_rank) return;
    if (machine.has_address(options.master_address)) {
        options.node_rank = 0;
    } else {
        options.joins = true;
    }
}

std::optional<launch::JoinRequest> agent_by_hand(const RunOptions& options) {
    if (!options.no_ssh || (!options.joins && options.node_rank.value_or(0) == 0))
        return std::nullopt;
    check_no_ssh(options);
    launch::JoinRequest request;
    request.endpoint = meeting_place(options);
    if (options.node_rank) request.identity.node = static_cast<uint32_t>(*options.node_rank);
    request.connect_max = options.connect_timeout.value_or(request.connect_max);
    return request;
}

std::optional<SlurmCopy> SlurmCopy::find(const RunOptions& options, const Machine& machine) {
    if (options.no_ssh || choose_host_source(options, machine) != HostSource::kSlurm)
        return std::nullopt;
    const launch::SlurmAllocation allocation = slurm_allocation(options, machine);
    if (!allocation.step) return std::nullopt;
    const launch::SlurmStep& step = *allocation.step;
    SlurmCopy copy;
    if (step.tasks > 1) {
        copy.held_name_ = fmt::format("slurm-{}.{}", allocation.job_id, step.id);
        copy.launches_ = step.task == 0;
        copy.speaks_ = step.local_task == 0;
        copy.launcher_ = "task 0 of this step";
        return copy;
    }
    // This step has only one task. But the user may have started a separate step on each node, with
    // the command that would start torchrun on this node.
    const int nodes = options.filter.num_nodes.value_or(1);
    const bool has_place = options.node_rank || !options.master_address.empty();
    if (nodes <= step.nodes || !has_place) return std::nullopt;
    copy.held_name_ = fmt::format("slurm-{}.{}:{}", allocation.job_id, options.master_address,
                                  options.master_port);
    copy.launches_ =
        options.node_rank ? *options.node_rank == 0 : machine.has_address(options.master_address);
    copy.speaks_ = true;
    copy.launcher_ = options.node_rank ? "the command with --node_rank 0"
                                       : "the command on " + options.master_address;
    return copy;
}

int SlurmCopy::wait(const RunOptions& options) const {
    if (options.dry_run) return 0;
    const UniqueFd signals = launch::open_end_signals();
    if (speaks_)
        log_info(
            "launch",
            "{} starts this job on all hosts; this copy of dslaunch only waits until the job ends",
            launcher_);
    const bool restarts = options.max_restarts.value_or(0) > 0 || options.elastic_training;
    const bool was_there = launch::wait_for_release(
        held_name_, {options.connect_timeout.value_or(kAppearsMax),
                     restarts ? kRestartsMax : kReturnsMax, signals.get()});
    if (!was_there && speaks_)
        log_info("launch", "{} did not start an agent on this host, so this copy of dslaunch ends",
                 launcher_);
    return 0;
}

}  // namespace dslaunch::launcher
