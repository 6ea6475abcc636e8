#include "launcher/run/slurm_copies.h"

#include <fmt/format.h>

#include "base/log.h"
#include "launch/machine/held_name.h"
#include "launch/supervise/job.h"
#include "launcher/run/host_source.h"

namespace dslaunch::launcher {
namespace {

using std::chrono::milliseconds;

// srun itself may wait for a busy controller before it starts the agents.
constexpr milliseconds kAppearsMax{30'000};
constexpr milliseconds kReturnsMax{500};
// The pause before a restart is 30 s at most, and srun comes again after it.
constexpr milliseconds kRestartsMax{60'000};

}  // namespace

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
    // A step for each node, all with the command that torchrun would have.
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
        log_info("launch", "{} launches this job on all its hosts; this copy waits for the end",
                 launcher_);
    const bool restarts = options.max_restarts.value_or(0) > 0 || options.elastic_training;
    const bool was_there = launch::wait_for_release(
        held_name_, {options.connect_timeout.value_or(kAppearsMax),
                     restarts ? kRestartsMax : kReturnsMax, signals.get()});
    if (!was_there && speaks_)
        log_info("launch", "{} has started nothing on this host; this copy ends", launcher_);
    return 0;
}

}  // namespace dslaunch::launcher
