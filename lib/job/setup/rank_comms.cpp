#include "job/setup/rank_comms.h"

#include <utility>

#include "base/error.h"
#include "job/setup/job_stages.h"
#include "job/setup/job_tensor.h"
#include "runtime/comm/host/control_block.h"

namespace dslaunch::job {

namespace {

// Fails if the agreements of the ranks differ: such ranks would wait for each other for ever.
void compare_agreements(runtime::Collectives& job, const JobSetup& setup) {
    const Agreement own = agreement(setup);
    const std::vector<std::string> structures = job.all_gather(own.structure);
    const std::vector<std::string> sizes = job.all_gather(own.sizes);
    for (size_t rank = 1; rank < structures.size(); ++rank) {
        if (structures[rank] != structures[0])
            fail(ExitCode::kDiverged,
                 "rank {} does not have the same pipeline stages, steps, shares and segments as "
                 "rank 0: model, config or dsworker differ between the hosts",
                 rank);
        if (sizes[rank] == sizes[0]) continue;
        if (setup.sharing.place.positions)
            fail(ExitCode::kConfig,
                 "dslaunch.sequence.size: the tensors passed between segments have other sizes on "
                 "rank {} than on rank 0. In this model the data decides how many rows a part "
                 "gets, as in a mixture of experts, so ranks cannot share positions; share the "
                 "model's layers (dslaunch.tensor.size), or leave dslaunch.sequence.size out",
                 rank);
        fail(ExitCode::kDiverged,
             "the tensors passed between segments have other sizes on rank {} than on rank 0: "
             "model, data or config differ between the hosts",
             rank);
    }
}

}  // namespace

Bytes touched_bytes(const runtime::ArenaLayout& arena) {
    return arena.total_bytes() - arena.control_bytes() +
           runtime::ControlBlock::bytes({arena.local_world_size(), arena.signal_count()});
}

void RankComms::open(const launch::WorkerEnvironment& environment, const JobSetup& setup,
                     runtime::ArenaLayout own, Duration time_limit) {
    const SharingPlace& sharing = setup.sharing.place;
    // On GPUs, the links carry only control messages, and NCCL has separate streams.
    const int streams = setup.on_gpu ? 1 : static_cast<int>(setup.config().streams);
    if (!setup.is_divided() && sharing.size == 1) {
        own_ = runtime::open_job_comm(environment, std::move(own), time_limit, streams);
        return;
    }
    runtime::ArenaLayout of_all(environment.local_world_size);
    const runtime::SliceId messages = runtime::add_host_link(of_all, setup.place.stages);
    try {
        job_ = runtime::open_job_comm(environment, std::move(of_all), time_limit, streams);
    } catch (const Error& error) {
        const bool checks = sharing.size > 1 && tensor_request(setup.config()).check;
        if (error.code() != ExitCode::kHang || !checks) throw;
        fail(ExitCode::kHang,
             "{}; rank 0 first compares the split graph with the unsplit graph in fp64: if this "
             "takes longer, give a larger --timeout, or set dslaunch.tensor.check or "
             "dslaunch.sequence.check to false",
             error.what());
    }
    compare_agreements(*job_->collectives, setup);
    own_ = runtime::open_group_comm(
        environment, *job_,
        {{setup.place.of_stage, setup.place.members}, "stage", std::move(own), time_limit});
    if (sharing.size > 1) {
        runtime::ArenaLayout of_group(sharing.group.topology.local_world_size());
        const runtime::TensorGroupSlices slices = runtime::add_tensor_group(of_group);
        group_ = runtime::open_group_comm(
            environment, *job_, {sharing.group, "tensor", std::move(of_group), time_limit});
        tensor_ = runtime::make_tensor_group(*group_->collectives, slices);
        if (setup.sharing.splits()) {
            compare_plans_of_group(*group_->collectives, setup);
            shares_ =
                graph::TensorRank{tensor_.get(), setup.sharing.plan.get(), &setup.whole_model()};
        }
    }
    if (!setup.place.is_pipeline()) return;
    links_ = runtime::open_stage_links(environment, *job_, setup.place, messages, time_limit);
    stages_.emplace(links_.links, setup.place.stage);
}

std::vector<runtime::Collectives*> RankComms::groups() const {
    std::vector<runtime::Collectives*> groups;
    if (job_) groups.push_back(own_->collectives.get());
    if (group_) groups.push_back(group_->collectives.get());
    return groups;
}

void RankComms::poison(const std::string& why) const {
    for (const std::optional<runtime::JobComm>* comm : {&own_, &group_, &job_})
        if (*comm && (*comm)->collectives != nullptr) (*comm)->collectives->poison(why);
    if (stages_) stages_->abort(why);
}

Bytes RankComms::shared_bytes(const JobSetup& setup, int ranks) {
    Bytes bytes;
    if (setup.is_divided() || setup.sharing.place.size > 1) {
        runtime::ArenaLayout of_all(ranks);
        static_cast<void>(runtime::add_host_link(of_all, setup.place.stages));
        bytes += touched_bytes(of_all);
    }
    if (setup.sharing.place.size > 1) {
        runtime::ArenaLayout of_group(ranks);
        static_cast<void>(runtime::add_tensor_group(of_group));
        bytes += touched_bytes(of_group);
    }
    return bytes;
}

}  // namespace dslaunch::job
