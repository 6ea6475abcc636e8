#include "zero/replicated_state.h"

#include <ATen/ATen.h>
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "base/error.h"

namespace dslaunch {

// Neighbouring slices of a bucket that got a gradient and have had equally many updates.
struct ReplicatedState::Run {
    Range range;  // within the bucket
    int first_slice = 0;
    int64_t step = 1;
};

namespace {

// After a bucket's gradients lie one flag per slice: 1 where this rank had a gradient. They are
// summed with the rest, so a parameter that no rank used is known to all without a message of its
// own.
int64_t flag_numel(const Bucket& bucket) {
    return round_up(bucket.end_slice - bucket.first_slice, kSliceAlignmentNumel);
}

struct NormBlock {
    int bucket;
    int slice;
    Range range;  // within the bucket
};

// Blocks start anew at each parameter, so that the norm is the same however the parameters are
// sharded.
std::vector<NormBlock> norm_blocks(const FlatLayout& layout) {
    std::vector<NormBlock> blocks;
    for (size_t b = 0; b < layout.buckets.size(); ++b) {
        const Bucket& bucket = layout.buckets[b];
        for (int i = bucket.first_slice; i < bucket.end_slice; ++i) {
            const ParameterSlice& slice = layout.slices[static_cast<size_t>(i)];
            const int64_t start = slice.offset_numel - bucket.offset_numel;
            for (int64_t at = 0; at < slice.numel; at += kNormBlockNumel)
                blocks.push_back({static_cast<int>(b),
                                  i,
                                  {start + at, std::min(kNormBlockNumel, slice.numel - at)}});
        }
    }
    return blocks;
}

// A parameter's own strides where they fill its elements without gaps, else plain rows.
at::Tensor view_like(const at::Tensor& tensor, float* data) {
    const at::TensorOptions options = at::TensorOptions().dtype(at::kFloat);
    if (tensor.is_non_overlapping_and_dense())
        return at::from_blob(data, tensor.sizes(), tensor.strides(), options);
    return at::from_blob(data, tensor.sizes(), options);
}

}  // namespace

ReplicatedSlices ReplicatedState::add_slices(const FlatLayout& layout, ArenaLayout& arena) {
    ReplicatedSlices slices;
    slices.parameters =
        arena.add_shared("parameters", Bytes{std::max<int64_t>(layout.numel, 1) * 4});
    for (size_t b = 0; b < layout.buckets.size(); ++b) {
        const Bucket& bucket = layout.buckets[b];
        slices.buckets.push_back(arena.add_bucket(fmt::format("gradients of bucket {}", b),
                                                  bucket.numel + flag_numel(bucket)));
        slices.updated.push_back(arena.add_signal(fmt::format("parameters of bucket {}", b)));
        slices.replicas.push_back(arena.add_signal(fmt::format("replicas of bucket {}", b)));
    }
    const auto blocks = static_cast<int64_t>(norm_blocks(layout).size());
    slices.norm_partials =
        arena.add_per_rank("norm partials", Bytes{std::max<int64_t>(blocks, 1) * 8});
    slices.norm = arena.add_signal("norm partials");
    return slices;
}

ReplicatedState::ReplicatedState(Model& model, const FlatLayout& layout,
                                 const ReplicatedSlices& slices, const Arena& arena,
                                 HostGroup& group, Collectives& collectives,
                                 const ReplicatedOptions& options)
    : model_(model),
      layout_(layout),
      slices_(slices),
      arena_(arena),
      group_(group),
      collectives_(collectives),
      options_(options),
      generations_(layout.buckets.size(), 0),
      reduced_(layout.buckets.size()),
      sources_(layout.buckets.size()),
      used_(layout.buckets.size()),
      slice_steps_(layout.slices.size(), 0) {
    const std::span<std::byte> bytes = arena.shared(slices.parameters);
    parameters_ = {reinterpret_cast<float*>(bytes.data()), static_cast<size_t>(layout.numel)};
    if (options.accumulate) accumulated_.resize(static_cast<size_t>(layout.numel));
    adopt_parameters(model);
    optimizer_.emplace(options.optimizer, layout);
    collector_ = std::make_unique<GradientCollector>(model, layout, gradient_views(model));
}

void ReplicatedState::adopt_parameters(Model& model) {
    const at::NoGradGuard no_grad;
    const auto local_rank = static_cast<int64_t>(group_.local_rank());
    const int64_t local_world_size = group_.local_world_size();
    std::vector<at::Tensor> views;
    for (size_t i = 0; i < layout_.slices.size(); ++i) {
        const ParameterSlice& slice = layout_.slices[i];
        const at::Tensor& parameter =
            model.parameters()[static_cast<size_t>(slice.parameter)].tensor;
        if (parameter.scalar_type() != at::kFloat)
            fail(ExitCode::kInput,
                 "parameter {} is {}, but this version trains fp32 models; save the model with "
                 ".float()",
                 model.parameters()[static_cast<size_t>(slice.parameter)].name,
                 c10::toString(parameter.scalar_type()));
        views.push_back(view_like(parameter, parameters_.data() + slice.offset_numel));
        // All ranks hold equal archives, so each parameter is copied once, by one of them.
        if (static_cast<int64_t>(i) % local_world_size != local_rank) continue;
        views.back().copy_(parameter);
        static_cast<void>(model.release_pages(slice.parameter));
    }
    collectives_.barrier();
    collectives_.broadcast_shared(slices_.parameters);
    for (size_t i = 0; i < layout_.slices.size(); ++i) {
        at::Tensor parameter =
            model.parameters()[static_cast<size_t>(layout_.slices[i].parameter)].tensor;
        parameter.set_data(views[i]);
    }
}

std::vector<at::Tensor> ReplicatedState::gradient_views(const Model& model) const {
    std::vector<at::Tensor> views;
    for (size_t b = 0; b < layout_.buckets.size(); ++b) {
        float* data = collectives_.bucket(slices_.buckets[b]).data();
        for (int i = layout_.buckets[b].first_slice; i < layout_.buckets[b].end_slice; ++i) {
            const ParameterSlice& slice = layout_.slices[static_cast<size_t>(i)];
            views.push_back(
                view_like(model.parameters()[static_cast<size_t>(slice.parameter)].tensor,
                          data + slice.offset_numel - layout_.buckets[b].offset_numel));
        }
    }
    return views;
}

void ReplicatedState::begin_step(int64_t step, double lr) {
    step_ = step;
    lr_ = lr;
    clip_factor_ = 1;
    for (std::vector<float>& used : used_) used.clear();
}

void ReplicatedState::run(const Instruction& instruction) {
    const int b = instruction.bucket;
    switch (instruction.op) {
        case Op::kAwait:
            if (step_ > 1)
                group_.await_all(slices_.updated[static_cast<size_t>(b)],
                                 static_cast<uint32_t>(step_ - 1));
            return;
        case Op::kClaim:
            return claim(b);
        case Op::kPost:
            return post(b);
        case Op::kReduce: {
            const float mean = 1.0F / static_cast<float>(collectives_.topology().world_size());
            return collectives_.reduce(slices_.buckets[static_cast<size_t>(b)],
                                       generations_[static_cast<size_t>(b)], mean);
        }
        case Op::kAccumulate:
            return accumulate(b);
        case Op::kNorm:
            return compute_norm();
        case Op::kUpdate:
            return update(b);
        default:
            DSL_CHECK(false, "{} is not for the replicated state", op_name(instruction.op));
    }
}

void ReplicatedState::settle() {
    for (const SignalId updated : slices_.updated)
        if (step_ > 0) group_.await_all(updated, static_cast<uint32_t>(step_));
}

void ReplicatedState::claim(int b) {
    const auto i = static_cast<size_t>(b);
    collectives_.await_free(slices_.buckets[i], ++generations_[i]);
    collector_->claim(bucket(b));
}

void ReplicatedState::post(int b) {
    const auto i = static_cast<size_t>(b);
    const std::span<float> values = collectives_.bucket(slices_.buckets[i]);
    const auto flags =
        values.subspan(static_cast<size_t>(bucket(b).numel),
                       static_cast<size_t>(bucket(b).end_slice - bucket(b).first_slice));
    collector_->complete(bucket(b), flags);
    collectives_.post(slices_.buckets[i], generations_[i]);
}

void ReplicatedState::accumulate(int b) {
    const auto i = static_cast<size_t>(b);
    const ReducedParts parts = collectives_.await_reduced(slices_.buckets[i], generations_[i]);
    float* into = accumulated_.data() + bucket(b).offset_numel;
    const std::vector<float> used = used_slices(b, parts, {});
    const bool first = used_[i].empty();
    if (first) used_[i].assign(used.size(), 0);
    for (size_t k = 0; k < used.size(); ++k) used_[i][k] += used[k];
    parts.for_each_in({0, bucket(b).numel}, [&](const Range& range, std::span<const float> values) {
        if (first) {
            std::memcpy(into + range.begin, values.data(), values.size_bytes());
        } else {
            const float* const terms[] = {into + range.begin, values.data()};
            ordered_sum(terms, 1.0F, into + range.begin, range.numel);
        }
    });
    collectives_.release(slices_.buckets[i], generations_[i]);
}

double ReplicatedState::block_squares(int b, const Range& range) {
    if (options_.accumulate)
        return sum_of_squares(accumulated_.data() + bucket(b).offset_numel + range.begin,
                              range.numel);
    const float* whole = nullptr;
    block_.resize(static_cast<size_t>(kNormBlockNumel));
    reduced_[static_cast<size_t>(b)].for_each_in(range, [&](const Range& piece,
                                                            std::span<const float> values) {
        if (piece == range) {
            whole = values.data();
        } else {
            std::copy(values.begin(), values.end(), block_.begin() + (piece.begin - range.begin));
        }
    });
    return sum_of_squares(whole != nullptr ? whole : block_.data(), range.numel);
}

void ReplicatedState::compute_norm() {
    if (!options_.accumulate)
        for (size_t b = 0; b < reduced_.size(); ++b)
            reduced_[b] = collectives_.await_reduced(slices_.buckets[b], generations_[b]);
    const std::vector<NormBlock> blocks = norm_blocks(layout_);
    const auto count = static_cast<int64_t>(blocks.size());
    const int64_t ranks = group_.local_world_size();
    const auto partials_of = [&](int64_t rank) {
        return reinterpret_cast<double*>(
            arena_.of_rank(slices_.norm_partials, static_cast<int>(rank)).data());
    };
    const auto first_block = [&](int64_t rank) { return count * rank / ranks; };
    double* mine = partials_of(group_.local_rank());
    for (int64_t i = first_block(group_.local_rank()); i < first_block(group_.local_rank() + 1);
         ++i)
        mine[i] = block_squares(blocks[static_cast<size_t>(i)].bucket,
                                blocks[static_cast<size_t>(i)].range);
    group_.post(slices_.norm, static_cast<uint32_t>(step_));
    group_.await_all(slices_.norm, static_cast<uint32_t>(step_));
    std::vector<double> partials;
    for (int64_t rank = 0; rank < ranks; ++rank)
        partials.insert(partials.end(), partials_of(rank) + first_block(rank),
                        partials_of(rank) + first_block(rank + 1));
    double squares = 0;
    for (const double partial : partials) squares += partial;
    norm_ = std::sqrt(squares);
    if (!std::isfinite(squares)) name_bad_gradient(partials);
    // As torch.nn.utils.clip_grad_norm_.
    const double factor = options_.gradient_clipping / (*norm_ + 1e-6);
    clip_factor_ = factor < 1 ? static_cast<float>(factor) : 1.0F;
}

void ReplicatedState::name_bad_gradient(std::span<const double> partials) const {
    const std::vector<NormBlock> blocks = norm_blocks(layout_);
    for (size_t i = 0; i < partials.size(); ++i) {
        if (std::isfinite(partials[i])) continue;
        const int parameter = layout_.slices[static_cast<size_t>(blocks[i].slice)].parameter;
        fail(ExitCode::kDiverged,
             "the gradient of {} is not finite in step {}: training has diverged; lower the "
             "learning rate or look at the "
             "data of this step",
             model_.parameters()[static_cast<size_t>(parameter)].name, step_);
    }
    fail(ExitCode::kDiverged, "the gradient norm overflows in step {}", step_);
}

Range ReplicatedState::own_part(int b) const {
    return part_range(bucket(b).numel, {group_.local_rank(), group_.local_world_size()});
}

std::vector<float> ReplicatedState::used_slices(int b, const ReducedParts& parts,
                                                const std::vector<const float*>& sources) const {
    const int64_t count = bucket(b).end_slice - bucket(b).first_slice;
    std::vector<float> used(static_cast<size_t>(count), 0);
    for (const float* source : sources)
        for (int64_t i = 0; i < count; ++i)
            used[static_cast<size_t>(i)] += source[bucket(b).numel + i];
    parts.for_each_in(
        {bucket(b).numel, count}, [&](const Range& range, std::span<const float> values) {
            std::copy(values.begin(), values.end(), used.begin() + (range.begin - bucket(b).numel));
        });
    return used;
}

std::vector<ReplicatedState::Run> ReplicatedState::find_runs(int b,
                                                             const std::vector<float>& used) {
    std::vector<Run> runs;
    for (int i = bucket(b).first_slice; i < bucket(b).end_slice; ++i) {
        if (used[static_cast<size_t>(i - bucket(b).first_slice)] <= 0) continue;
        const ParameterSlice& slice = layout_.slices[static_cast<size_t>(i)];
        const int64_t step = ++slice_steps_[static_cast<size_t>(i)];
        const Range range{slice.offset_numel - bucket(b).offset_numel,
                          round_up(slice.numel, kSliceAlignmentNumel)};
        if (!runs.empty() && runs.back().step == step && runs.back().range.end() == range.begin) {
            runs.back().range.numel += range.numel;
        } else {
            runs.push_back({range, i, step});
        }
    }
    return runs;
}

void ReplicatedState::update(int b) {
    const auto i = static_cast<size_t>(b);
    const BucketId id = slices_.buckets[i];
    if (options_.fused_update) {
        sources_[i] = collectives_.await_sources(id, generations_[i]);
    } else if (!options_.accumulate && options_.gradient_clipping == 0) {
        reduced_[i] = collectives_.await_reduced(id, generations_[i]);
    }
    const std::vector<float> used =
        options_.accumulate ? used_[i] : used_slices(b, reduced_[i], sources_[i]);
    const std::vector<Run> runs = find_runs(b, used);
    const Range own = own_part(b);
    const int64_t numel = bucket(b).numel;
    // The replicas of what other ranks write come first: L2 decay reads the parameters of before
    // the step.
    for (const Run& run : runs) {
        update_range(b, run, intersect(run.range, {0, own.begin}), false);
        update_range(b, run, intersect(run.range, {own.end(), numel - own.end()}), false);
    }
    const bool decoupled = options_.optimizer.kind == OptimizerKind::kAdamW;
    if (options_.optimizer.weight_decay != 0 && !decoupled) {
        group_.post(slices_.replicas[i], static_cast<uint32_t>(step_));
        group_.await_all(slices_.replicas[i], static_cast<uint32_t>(step_));
    }
    for (const Run& run : runs) update_range(b, run, intersect(run.range, own), true);
    group_.post(slices_.updated[i], static_cast<uint32_t>(step_));
    if (!options_.accumulate) collectives_.release(id, generations_[i]);
    reduced_[i] = {};
}

void ReplicatedState::update_range(int b, const Run& run, const Range& range, bool own) {
    if (range.numel == 0) return;
    const auto i = static_cast<size_t>(b);
    const auto apply = [&](const Range& piece, std::span<const float* const> gradients,
                           float scale) {
        FlatOptimizerState::Piece update;
        update.slice = run.first_slice;
        update.offset_numel = bucket(b).offset_numel + piece.begin;
        float* parameters = parameters_.data() + update.offset_numel;
        update.range.numel = piece.numel;
        update.range.gradients = gradients;
        update.range.gradient_scale = scale;
        update.range.parameters = own ? parameters : nullptr;
        update.range.decay_parameters = own ? nullptr : parameters;
        optimizer_->update(update, lr_, run.step);
    };
    if (options_.fused_update) {
        std::vector<const float*> gradients;
        for (const float* source : sources_[i]) gradients.push_back(source + range.begin);
        apply(range, gradients, 1.0F / static_cast<float>(collectives_.topology().world_size()));
    } else if (options_.accumulate) {
        const float* const gradient = accumulated_.data() + bucket(b).offset_numel + range.begin;
        apply(range, {&gradient, 1}, clip_factor_);
    } else {
        reduced_[i].for_each_in(range, [&](const Range& piece, std::span<const float> values) {
            const float* const gradient = values.data();
            apply(piece, {&gradient, 1}, clip_factor_);
        });
    }
}

}  // namespace dslaunch
