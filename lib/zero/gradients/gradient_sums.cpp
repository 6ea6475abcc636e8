#include "zero/gradients/gradient_sums.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/ScalarType.h>
#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "zero/parameters/flat_view.h"

namespace dslaunch::zero {

std::vector<runtime::BucketId> GradientSums::add_slices(const plan::FlatLayout& layout,
                                                        std::span<const int> buffer_of_bucket,
                                                        std::span<const int64_t> buffer_numel,
                                                        runtime::ArenaLayout& arena) {
    std::vector<runtime::SliceId> buffers;
    for (size_t k = 0; k < buffer_numel.size(); ++k)
        buffers.push_back(
            arena.add_per_rank(fmt::format("gradient buffer {}", k), Bytes{buffer_numel[k] * 4}));
    std::vector<runtime::BucketId> buckets;
    for (int b = 0; b < layout.trained_buckets; ++b) {
        const auto i = static_cast<size_t>(b);
        const int64_t numel = layout.buckets[i].numel + plan::flag_numel(layout.buckets[i]);
        const std::string name = fmt::format("gradients of bucket {}", b);
        const int buffer = buffer_of_bucket.empty() ? -1 : buffer_of_bucket[i];
        buckets.push_back(buffer < 0 ? arena.add_bucket(name, numel)
                                     : arena.add_bucket(name, numel, buffers[buffer], 0));
    }
    return buckets;
}

GradientSums::GradientSums(const graph::Model& model, const ShardMap& map,
                           std::vector<runtime::BucketId> buckets,
                           std::span<const int> buffer_of_bucket, const TensorDevice& device,
                           runtime::Collectives& collectives, const GradientOptions& options)
    : map_(map), device_(device), collectives_(collectives), options_(options) {
    int buffers = 0;
    for (size_t b = 0; b < buckets.size(); ++b) {
        const int buffer = buffer_of_bucket.empty() ? -1 : buffer_of_bucket[b];
        sums_.push_back({.id = buckets[b], .buffer = buffer});
        buffers = std::max(buffers, buffer + 1);
    }
    bucket_in_buffer_.assign(static_cast<size_t>(buffers), -1);
    collector_ = std::make_unique<GradientCollector>(model, map.layout(), views(model));
    const runtime::Topology& place = map.topology();
    if (!options.keeps_errors || !place.is_bridge()) return;
    for (int b = 0; b < std::ssize(sums_); ++b)
        sums_[b].errors.resize(
            static_cast<size_t>(runtime::sent_numel(map.gradient_destinations(b), place.node_rank,
                                                    {place.local_rank, place.bridge_count()})));
}

Bytes GradientSums::error_bytes() const {
    Bytes bytes;
    for (const BucketSums& sums : sums_) bytes += Bytes{std::ssize(sums.errors) * 4};
    return bytes;
}

std::vector<at::Tensor> GradientSums::views(const graph::Model& model) const {
    std::vector<at::Tensor> views;
    for (int b = 0; b < map_.layout().trained_buckets; ++b) {
        float* data = own(b).data();
        for (int i = bucket(b).first_slice; i < bucket(b).end_slice; ++i) {
            const plan::ParameterSlice& slice = map_.layout().slices[i];
            views.push_back(view_like(model.parameters()[slice.parameter].tensor,
                                      data + slice.offset_numel - bucket(b).offset_numel,
                                      at::kFloat, device_.name));
        }
    }
    return views;
}

void GradientSums::begin_step() {
    for (BucketSums& sums : sums_) sums.used.clear();
}

// Waits until no rank reads the bucket's memory.
void GradientSums::begin_generation(int b) {
    BucketSums& sums = sums_[b];
    collectives_.await_free(sums.id, ++sums.generation);
    if (sums.buffer < 0) return;
    int& last = bucket_in_buffer_[sums.buffer];
    if (last >= 0 && last != b) collectives_.await_free(sums_[last].id, sums_[last].generation + 1);
    last = b;
}

void GradientSums::claim(int b) {
    begin_generation(b);
    collector_->claim(bucket(b));
}

// Completes bucket B. On the host the usage flags are stored after the gradients. If gradients are
// on a device, the flags stay in the host's memory, so that ranks can exchange them without waiting
// for the device.
void GradientSums::complete(int b) {
    const auto slices = static_cast<size_t>(bucket(b).end_slice - bucket(b).first_slice);
    if (device_.device->is_host()) {
        collector_->complete(bucket(b),
                             own(b).subspan(static_cast<size_t>(bucket(b).numel), slices));
    } else {
        std::vector<float>& flags = sums_[b].usage.mine;
        flags.resize(slices);
        collector_->complete(bucket(b), flags);
    }
    if (options_.tensor != nullptr) sum_over_tensor_ranks(b);
}

std::span<float> GradientSums::complete_tied(int b) {
    complete(b);
    return own(b);
}

void GradientSums::post(int b) {
    BucketSums& held = sums_[b];
    if (bucket(b).kind != plan::BucketKind::kTied) complete(b);
    collectives_.post(held.id, held.generation);
}

// Sums the gradients of kind TensorGradient::kSummand in bucket B over the tensor ranks: each rank
// has computed one summand. One collective sums all these gradients. A rank without a gradient
// sends zeros.
void GradientSums::sum_over_tensor_ranks(int b) const {
    constexpr int64_t kGradientSites = int64_t{1} << 32;  // above the sites of any graph
    std::vector<at::Tensor> mine;
    for (int i = bucket(b).first_slice; i < bucket(b).end_slice; ++i) {
        const plan::ParameterSlice& slice = map_.layout().slices[i];
        const auto parameter = static_cast<size_t>(slice.parameter);
        if (options_.tensor->plan->parameters[parameter].gradient != plan::TensorGradient::kSummand)
            continue;
        mine.push_back(at::from_blob(own(b).data() + slice.offset_numel - bucket(b).offset_numel,
                                     {slice.numel}, at::kFloat));
    }
    if (mine.empty()) return;
    const at::Tensor sum = options_.tensor->group->sum(at::cat(mine), kGradientSites + b);
    int64_t offset = 0;
    for (at::Tensor& gradient : mine) {
        gradient.copy_(sum.narrow(0, offset, gradient.numel()));
        offset += gradient.numel();
    }
}

namespace {

// Returns a seed that does not depend on where a run began, so that a resumed run has the same
// bits.
uint32_t rounding_seed(const plan::Instruction& reduce, int64_t step) {
    uint32_t seed = static_cast<uint32_t>(step) * 0x9E3779B1U;
    seed ^= static_cast<uint32_t>(reduce.micro_step) * 0x85EBCA77U;
    return seed ^ static_cast<uint32_t>(reduce.bucket) * 0xC2B2AE3DU;
}

}  // namespace

void GradientSums::reduce(const plan::Instruction& reduce, int64_t step) {
    const int b = reduce.bucket;
    BucketSums& held = sums_[b];
    if (scope_.on_host) return collectives_.reduce_on_host(held.id, held.generation, mean());
    if (!sums_in_place()) {
        const std::vector<runtime::NodeRange> destinations = map_.gradient_destinations(b);
        runtime::ReduceCoding coding{options_.packing, rounding_seed(reduce, step), held.errors};
        std::vector<Range> exact;
        float scale = mean();
        if (is_half(options_.packing)) {
            exact = plan::exact_ranges(map_.layout(), b);
            coding.exact = exact;
            coding.scale_before = static_cast<float>(1 / options_.predivide);
            scale = static_cast<float>(options_.predivide * static_cast<double>(scale));
        }
        return collectives_.reduce(held.id, held.generation, scale, destinations, coding);
    }
    held.sources = collectives_.await_sources(held.id, held.generation);
    if (held.sources.size() == 1) return;  // this source is the sum
    // This rank owns these elements, and no other rank reads its gradients now, so the sums may
    // overwrite the gradients.
    for (const OwnedPiece& piece : map_.pieces(b)) {
        std::vector<const float*> terms;
        for (const float* source : held.sources) terms.push_back(source + piece.range.begin);
        queue().ordered_sum(terms, mean(), own(b).data() + piece.range.begin, piece.range.numel);
    }
}

void GradientSums::open(int b) {
    BucketSums& held = sums_[b];
    if (options_.keep) return;
    if (scope_.fused || sums_in_place()) {
        held.sources = collectives_.await_sources(held.id, held.generation);
    } else if (held.parts.parts.empty()) {
        held.parts = await_parts(b);
    }
}

runtime::ReducedParts GradientSums::await_parts(int b) {
    BucketSums& held = sums_[b];
    return scope_.on_host ? collectives_.await_reduced_on_host(held.id, held.generation)
                          : collectives_.await_reduced(held.id, held.generation);
}

// Returns the sums of all ranks' flags. They are known once the backward pass has been queued on
// the device.
std::vector<float> GradientSums::agree_on_usage(int b) {
    Usage& usage = sums_[b].usage;
    if (map_.topology().world_size() == 1) return usage.mine;
    if (!usage.sums.empty() && !options_.usage_varies) {
        DSL_CHECK(usage.mine == usage.mine_before,
                  "in bucket {}, other parameters got a gradient than in an earlier pass, although "
                  "the model has no branch",
                  b);
        return usage.sums;
    }
    std::vector<float> sums(usage.mine.size(), 0);
    const std::string_view bytes(reinterpret_cast<const char*>(usage.mine.data()),
                                 usage.mine.size() * sizeof(float));
    for (const std::string& theirs : collectives_.all_gather(bytes)) {
        DSL_CHECK(theirs.size() == bytes.size(), "a rank sent {} bytes of flags, a wrong length",
                  theirs.size());
        for (size_t k = 0; k < sums.size(); ++k) {
            float flag = 0;
            std::memcpy(&flag, theirs.data() + k * sizeof flag, sizeof flag);
            sums[k] += flag;
        }
    }
    if (usage.sums.empty()) usage.mine_before = usage.mine;
    usage.sums = sums;
    return sums;
}

std::vector<float> GradientSums::used(int b) {
    BucketSums& held = sums_[b];
    if (options_.keep && !held.used.empty()) return held.used;
    if (!device_.device->is_host()) return agree_on_usage(b);
    const int64_t count = bucket(b).end_slice - bucket(b).first_slice;
    std::vector<float> used(static_cast<size_t>(count), 0);
    for (const float* source : held.sources)
        for (int64_t k = 0; k < count; ++k) used[k] += source[bucket(b).numel + k];
    held.parts.for_each_in(
        {bucket(b).numel, count}, [&](const Range& range, std::span<const float> values) {
            std::copy(values.begin(), values.end(), used.begin() + (range.begin - bucket(b).numel));
        });
    return used;
}

void GradientSums::close(int b) {
    BucketSums& held = sums_[b];
    if (!options_.keep) collectives_.release(held.id, held.generation);
    held.parts = {};
    held.sources.clear();
}

void GradientSums::begin_accumulate(int b) {
    BucketSums& held = sums_[b];
    if (scope_.fused) {
        held.sources = collectives_.await_sources(held.id, held.generation);
    } else {
        held.parts = await_parts(b);
    }
    first_micro_step_ = held.used.empty();
    const std::vector<float> before = std::exchange(held.used, {});
    std::vector<float> mine = used(b);
    if (!first_micro_step_)
        for (size_t k = 0; k < mine.size(); ++k) mine[k] += before[k];
    held.used = std::move(mine);
}

void GradientSums::accumulate(int b, const Range& range, float* into) const {
    for_each_in(b, range, [&](const Range& part, std::span<const float* const> terms, float scale) {
        float* const sums = into + (part.begin - range.begin);
        if (first_micro_step_) {
            queue().ordered_sum(terms, scale, sums, part.numel);
        } else {
            queue().accumulate_sum(terms, scale, sums, part.numel);
        }
    });
}

void GradientSums::end_accumulate(int b) {
    BucketSums& held = sums_[b];
    collectives_.release(held.id, held.generation);
    held.parts = {};
    held.sources.clear();
}

// Fills this rank's memory of a bucket with -0. Later only one rank writes each element, so the sum
// over ranks equals the written value.
std::span<float> GradientSums::begin_collect(int b) {
    begin_generation(b);
    const std::span<float> mine = own(b);
    queue().fill(mine.data(), -0.0F, std::ssize(mine));
    return mine;
}

void GradientSums::post_collected(int b) {
    BucketSums& held = sums_[b];
    const std::span<float> mine = own(b);
    const auto blank = [&](const Range& range) {
        queue().fill(mine.data() + range.begin, -0.0F, range.numel);
    };
    // Only one rank sends the value of an element: a rank of the first copy or, at stage 0, the
    // rank that writes the piece. All other ranks send -0.
    for (const OwnedPiece& piece : map_.pieces(b))
        if (!piece.writes || map_.copy() != 0) blank(piece.range);
    collectives_.post(held.id, held.generation);
}

std::vector<float> GradientSums::take_whole(int b) {
    BucketSums& held = sums_[b];
    collectives_.reduce(held.id, held.generation, 1.0F);
    const runtime::ReducedParts parts = collectives_.await_reduced(held.id, held.generation);
    std::vector<float> whole(static_cast<size_t>(parts.numel));
    for (const runtime::ReducedParts::Part& part : parts.parts)
        queue().copy_out(whole.data() + part.range.begin, part.values.data(),
                         static_cast<int64_t>(part.values.size_bytes()));
    whole.resize(static_cast<size_t>(bucket(b).numel));
    collectives_.release(held.id, held.generation);
    return whole;
}

}  // namespace dslaunch::zero
