#include "zero/states/tensor_states.h"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <numeric>

#include "base/check.h"
#include "storage/checkpoint/manifest.h"

namespace dslaunch::zero {

using config::OptimizerKind;

std::vector<std::string> tensor_state_names(const config::OptimizerConfig& config) {
    if (config.kind == OptimizerKind::kAdafactor)
        return {"exp_avg_sq_row", "exp_avg_sq_col", "exp_avg_sq"};
    if (config.kind == OptimizerKind::kOneBitLamb)
        return {std::string(storage::kFreshVariance), std::string(storage::kLambCoefficient)};
    return {};
}

std::vector<int64_t> tensor_state_numel(const config::OptimizerConfig& config,
                                        std::span<const int64_t> shape) {
    const int64_t numel =
        std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
    if (config.kind == OptimizerKind::kOneBitLamb) return {numel, kLambNumbers};
    if (config.kind != OptimizerKind::kAdafactor) return {};
    if (shape.size() < 2) return {0, 0, numel};
    if (numel == 0) return {0, 0, 0};
    return {numel / shape[shape.size() - 1], numel / shape[shape.size() - 2], 0};
}

TensorStates::TensorStates(const config::OptimizerConfig& config, const graph::Model& model,
                           const ShardMap& map)
    : config_(config),
      model_(model),
      map_(map),
      begins_(static_cast<size_t>(map.layout().trained_slices), -1) {
    if (tensor_state_names(config).empty()) return;
    int64_t numel = 0;
    for (int b = 0; b < map.layout().trained_buckets; ++b)
        for_each_slice(b, /*writes=*/false, [&](int slice) {
            begins_[static_cast<size_t>(slice)] = numel;
            for (const int64_t state : tensor_state_numel(config_, shape_of(slice))) numel += state;
        });
    values_ = ZeroedFloats(numel);
}

std::span<const int64_t> TensorStates::shape_of(int slice) const {
    const auto parameter = static_cast<size_t>(map_.layout().slices[slice].parameter);
    const at::IntArrayRef sizes = model_.parameters()[parameter].tensor.sizes();
    return {sizes.data(), sizes.size()};
}

template <typename Use>
void TensorStates::for_each_slice(int b, bool writes, Use&& use) const {
    const plan::Bucket& bucket = map_.layout().buckets[b];
    for (int i = bucket.first_slice; i < bucket.end_slice; ++i) {
        const plan::ParameterSlice& slice = map_.layout().slices[i];
        const Range elements{slice.offset_numel - bucket.offset_numel, slice.numel};
        const bool here = std::ranges::any_of(map_.pieces(b), [&](const OwnedPiece& piece) {
            return (piece.writes || !writes) && intersect(piece.range, elements).numel > 0;
        });
        if (here) use(i);
    }
}

TensorStates::Values TensorStates::of(int slice) {
    Values values;
    if (tensor_state_names(config_).empty()) return values;
    int64_t at = begins_[static_cast<size_t>(slice)];
    DSL_CHECK(at >= 0, "slice {} is not kept on this rank", slice);
    const std::vector<int64_t> sizes = tensor_state_numel(config_, shape_of(slice));
    for (size_t k = 0; k < sizes.size(); ++k) {
        values[k] =
            values_.values().subspan(static_cast<size_t>(at), static_cast<size_t>(sizes[k]));
        at += sizes[k];
    }
    return values;
}

void TensorStates::load(runtime::SavedState& saved) {
    const std::vector<std::string>& theirs = saved.checkpoint().states;
    const std::vector<std::string> names = tensor_state_names(config_);
    for (size_t k = 0; k < names.size(); ++k) {
        const auto found = std::ranges::find(theirs, names[k]);
        if (found == theirs.end()) continue;
        for (int i = 0; i < std::ssize(begins_); ++i) {
            const int parameter = map_.layout().slices[i].parameter;
            if (begins_[static_cast<size_t>(i)] < 0 || !saved.has_states(parameter)) continue;
            const std::span<float> into = of(i)[k];
            if (into.empty()) continue;
            saved.read_state(parameter, static_cast<int>(found - theirs.begin()),
                             {0, std::ssize(into)}, into.data());
        }
    }
}

void TensorStates::add_pieces(int bucket, int first, int unit,
                              std::vector<runtime::SavedPiece>& pieces) {
    if (tensor_state_names(config_).empty()) return;
    for_each_slice(bucket, /*writes=*/true, [&](int slice) {
        // If several hosts or groups hold a copy, only one of them saves this slice.
        if (slice % map_.copies() != map_.copy()) return;
        int state = first;
        for (const std::span<float> values : of(slice)) {
            if (!values.empty())
                pieces.push_back({map_.layout().slices[slice].parameter,
                                  state,
                                  {0, std::ssize(values)},
                                  reinterpret_cast<const std::byte*>(values.data()),
                                  unit});
            ++state;
        }
    });
}

}  // namespace dslaunch::zero
