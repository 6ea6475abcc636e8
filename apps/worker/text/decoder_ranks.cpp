#include "worker/text/decoder_ranks.h"

#include <algorithm>
#include <span>
#include <utility>

#include "runtime/comm/host_link.h"

namespace dslaunch::worker {

DecoderRanks::DecoderRanks(launch::WorkerEnvironment environment,
                           const storage::TransformerConfig& config, int tensor_ranks)
    : environment_(std::move(environment)) {
    mesh_ = decoder::choose_mesh(config, environment_.node_sizes, tensor_ranks);
    place_ = runtime::make_pipeline_place(environment_.node_sizes, mesh_.ranks_of_stages(),
                                          environment_.rank);
}

decoder::DecoderPart DecoderRanks::part(const storage::TransformerConfig& config) const {
    return decoder::decoder_part(config,
                                 {environment_.rank % mesh_.tensor_ranks, mesh_.tensor_ranks},
                                 {place_.stage, mesh_.stages});
}

void DecoderRanks::open(int64_t rows_numel, Duration time_limit) {
    runtime::ArenaLayout of_all(environment_.local_world_size);
    const runtime::SliceId messages = runtime::HostLink::add_slice(of_all, mesh_.stages);
    all_ = runtime::open_job_comm(environment_, std::move(of_all), time_limit);
    if (mesh_.tensor_ranks > 1) {
        runtime::ArenaLayout of_stage(place_.of_stage.local_world_size());
        const decoder::GroupSum::Slices slices =
            decoder::GroupSum::add_slices(of_stage, rows_numel);
        stage_ = runtime::open_group_comm(
            environment_, *all_,
            {{place_.of_stage, place_.members}, "stage", std::move(of_stage), time_limit});
        sum_.emplace(*stage_->collectives, slices);
    }
    if (mesh_.stages > 1)
        links_ = runtime::open_stage_links(environment_, *all_, place_, messages, time_limit);
}

int64_t DecoderRanks::of_first(int64_t value) {
    all_->collectives->broadcast(std::as_writable_bytes(std::span(&value, 1)));
    return value;
}

decoder::GroupParts DecoderRanks::parts(decoder::Decoder& decoder) {
    return {decoder, *all_->collectives, sum(), place_, links_.links};
}

void DecoderRanks::poison(const std::string& why) const {
    for (const std::optional<runtime::JobComm>* comm : {&stage_, &all_})
        if (*comm && (*comm)->collectives) (*comm)->collectives->poison(why);
    for (runtime::Link* link : links_.links)
        if (link != nullptr) link->abort(why);
}

}  // namespace dslaunch::worker
