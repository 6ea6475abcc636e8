#include "launcher/run/host_source.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/text.h"

namespace dslaunch::launcher {
namespace {

constexpr int kDeepspeedPort = 29'500;

std::optional<launch::SlurmAllocation> find_allocation(const RunOptions& options,
                                                       const Machine& machine) {
    return launch::find_slurm_allocation(machine.environment,
                                         options.device != launch::DeviceRequest::kCpu);
}

bool has_allocation(const Machine& machine) {
    return machine.variable("SLURM_JOB_ID") && machine.variable("SLURM_JOB_NODELIST");
}

// The endpoint of a --no_ssh job, at which node 0 waits and which the others join.
launch::JoinEndpoint meeting_place(const RunOptions& options) {
    if (options.master_address.empty()) {
        fail(ExitCode::kUsage,
             "--no_ssh needs --master_addr, the address of node 0 at which the other nodes reach "
             "it");
    }
    return launch::parse_join_endpoint(
        fmt::format("{}:{}", options.master_address,
                    options.master_port == 0 ? kDeepspeedPort : options.master_port));
}

void check_no_ssh(const RunOptions& options) {
    if (!options.launcher.empty()) {
        fail(ExitCode::kUsage, "--no_ssh and --launcher {} exclude each other", options.launcher);
    }
    if (!options.listen.empty()) {
        fail(ExitCode::kUsage,
             "--no_ssh waits at --master_addr and --master_port; leave --listen "
             "out");
    }
    if (!options.node_rank) {
        fail(ExitCode::kUsage,
             "--no_ssh needs --node_rank on each node: 0 starts the job, the others join it");
    }
}

}  // namespace

HostSource choose_host_source(const RunOptions& options, const Machine& machine) {
    if (!machine.joining.hosts.empty()) return HostSource::kMpi;
    if (options.no_ssh) {
        check_no_ssh(options);
        return HostSource::kJoin;
    }
    const bool join = options.launcher == "join";
    if (join && options.listen.empty()) {
        fail(ExitCode::kUsage,
             "--launcher join needs --listen ADDRESS:PORT, where agents reach it");
    }
    if (!join && !options.listen.empty()) {
        fail(ExitCode::kUsage, "--listen is for --launcher join");
    }
    if (join) return HostSource::kJoin;
    if (!options.token_file.empty()) {
        fail(ExitCode::kUsage, "--token_file is for --launcher join and --no_ssh");
    }
    const bool allocation = has_allocation(machine);
    if (options.launcher == "slurm" && !allocation) {
        fail(ExitCode::kUsage,
             "--launcher slurm works inside an allocation (salloc, sbatch): SLURM_JOB_ID and "
             "SLURM_JOB_NODELIST are not set here");
    }
    if (!options.hostfile.empty()) return HostSource::kHostfile;
    if (options.standalone || options.launcher == "local") return HostSource::kThisMachine;
    if (allocation) return HostSource::kSlurm;
    return machine.default_hostfile.empty() ? HostSource::kThisMachine : HostSource::kHostfile;
}

bool is_other_copy(const RunOptions& options, const Machine& machine) {
    if (!has_allocation(machine)) return false;
    if (choose_host_source(options, machine) != HostSource::kSlurm) return false;
    return find_allocation(options, machine)->is_other_copy;
}

std::vector<launch::Host> slurm_hosts(const RunOptions& options, const Machine& machine,
                                      std::vector<std::string>& notes) {
    launch::SlurmAllocation allocation = *find_allocation(options, machine);
    const bool unknown = allocation.slots == launch::SlurmAllocation::Slots::kUnknown;
    int slots = 0;
    for (launch::Host& host : allocation.hosts) {
        if (unknown) host.slots = options.filter.num_gpus.value_or(1);
        slots += host.slots;
    }
    notes.push_back(fmt::format("Slurm job {}: {} hosts, {} slots", allocation.job_id,
                                allocation.hosts.size(), slots));
    if (unknown && !options.filter.num_gpus) {
        notes.emplace_back(
            "Slurm names neither GPUs nor tasks per node: one worker per host; ask for "
            "--gpus-per-node or --ntasks-per-node, or give --num_gpus here");
    }
    return std::move(allocation.hosts);
}

std::vector<launch::Host> joining_hosts(const RunOptions& options,
                                        std::vector<std::string>& notes) {
    if (!options.filter.num_nodes) {
        fail(ExitCode::kUsage, "without a hostfile --nnodes N says how many nodes come");
    }
    if (!options.filter.num_gpus) {
        notes.emplace_back("one worker per node; give --num_gpus for more");
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

std::optional<launch::JoinRequest> agent_by_hand(const RunOptions& options) {
    if (!options.no_ssh || options.node_rank.value_or(0) == 0) return std::nullopt;
    check_no_ssh(options);
    launch::JoinRequest request;
    request.endpoint = meeting_place(options);
    request.identity.node = static_cast<uint32_t>(*options.node_rank);
    request.connect_max = options.connect_timeout.value_or(request.connect_max);
    return request;
}

}  // namespace dslaunch::launcher
