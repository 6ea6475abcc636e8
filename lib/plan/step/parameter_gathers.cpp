#include "plan/step/parameter_gathers.h"

#include <algorithm>
#include <iterator>

namespace dslaunch::plan {

void ParameterGathers::choose(const ModelInfo& model, const std::vector<RecomputeGroup>& groups) {
    buckets_of_ = buckets_of_segments(model, layout_);
    buffer_of_bucket_.assign(layout_.buckets.size(), -1);
    awaited_.assign(layout_.buckets.size(), 0);
    gathers_.parts.resize(parts_of(options_.stage_work, model.segments.size()).size());
    if (!options_.gathers()) return;
    std::vector<std::vector<int>> gathered(buckets_of_.size());
    for (size_t s = 0; s < buckets_of_.size(); ++s)
        std::ranges::copy_if(buckets_of_[s], std::back_inserter(gathered[s]),
                             [this](int b) { return is_gathered(b); });
    gathers_ = make_step_gathers(model, layout_, gathered, groups, options_);
    plan_.gather_buffer_numel = gathers_.buffer_numel;
}

void ParameterGathers::begin_work(size_t part, GatherSchedule PartGathers::*schedule) {
    schedule_ = &(gathers_.parts[part].*schedule);
    position_ = 0;
}

void ParameterGathers::add_awaits(int segment) {
    for (const int b : buckets_of_[segment]) {
        char& awaited = awaited_[b];
        if (awaited != 0 || is_gathered(b) || b >= layout_.trained_buckets) continue;
        awaited = 1;
        plan_.add(Op::kAwait, Lane::kCompute, b).writes = {kept_.parameters[b]};
    }
}

// Adds a Read of this rank's part of a bucket's parameters. The Read fills the bucket's gather
// buffer.
void ParameterGathers::add_bucket_read(const GatherUse& use, int m) {
    Instruction& read = plan_.add(Op::kRead, Lane::kRead, use.bucket, m);
    read.buffer = use.buffer;
    chunk_passes_.join_bucket_read(read);
    read.writes = {kept_.staging[use.buffer]};
}

void ParameterGathers::add_gathers(int m) {
    for (const GatherUse& use : schedule_->uses) {
        if (use.issue != position_ || is_kept(use)) continue;
        if (options_.offload.parameters) add_bucket_read(use, m);
        Instruction& gather = plan_.add(Op::kGather, Lane::kCommunication, use.bucket, m);
        gather.buffer = use.buffer;
        gather.reads = {kept_.parameters[use.bucket]};
        gather.writes = {kept_.staging[use.buffer], kept_.places[use.bucket]};
        sums_.count_gather(gather);
        if (options_.keeps_gathered()) kept_gathers_.push_back(use);
    }
    // A bucket is never in two buffers at once, so its readers use the buffer of its newest gather.
    for (const GatherUse& use : schedule_->uses)
        if (use.begin == position_) buffer_of_bucket_[use.bucket] = use.buffer;
}

void ParameterGathers::join(int segment, Instruction& instruction) const {
    for (const int b : buckets_of_[segment]) {
        const auto i = static_cast<size_t>(b);
        if (!is_gathered(b)) {
            instruction.reads.push_back(kept_.parameters[i]);
            continue;
        }
        instruction.reads.push_back(kept_.staging[buffer_of_bucket_[i]]);
        instruction.reads.push_back(kept_.places[i]);
    }
}

// Returns true if the bucket has been gathered in this step and is kept.
bool ParameterGathers::is_kept(const GatherUse& use) const {
    return std::ranges::find(kept_gathers_, use.bucket, &GatherUse::bucket) != kept_gathers_.end();
}

void ParameterGathers::add_release(const GatherUse& use, int m) {
    Instruction& release = plan_.add(Op::kRelease, Lane::kCompute, use.bucket, m);
    release.buffer = use.buffer;
    release.writes = {kept_.staging[use.buffer], kept_.places[use.bucket]};
}

void ParameterGathers::end_position(int m) {
    for (const GatherUse& use : schedule_->uses)
        if (use.end == position_ && !options_.keeps_gathered()) add_release(use, m);
    ++position_;
}

void ParameterGathers::release_kept() {
    for (const GatherUse& use : kept_gathers_)
        add_release(use, static_cast<int>(options_.accumulation_steps) - 1);
}

}  // namespace dslaunch::plan
