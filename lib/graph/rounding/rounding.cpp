#include "graph/rounding/rounding.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/aminmax.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/sort.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/splitmix64.h"

namespace dslaunch::graph {

namespace {

// Returns numbers in [-0.5, 0.5), the same on every device. Element I depends on SEED and I alone.
at::Tensor jitter(const at::Tensor& like, uint64_t seed) {
    at::Tensor made = at::empty(like.sizes(), at::kFloat);
    float* const values = made.mutable_data_ptr<float>();
    constexpr float kStep = 1.0F / (1 << 24);
    for (int64_t i = 0; i < made.numel(); ++i)
        values[i] =
            static_cast<float>(splitmix64(seed + static_cast<uint64_t>(i)) >> 40) * kStep - 0.5F;
    return made.to(like.device());
}

// Rounds VALUES, [groups, …] fp32, to numbers of the form ZERO + k * SCALE. The integer k is
// limited to the range from STEPS.first to STEPS.second. An undefined ZERO counts as 0. Rounds to
// nearest if SEED is null; otherwise rounds randomly.
at::Tensor rounded(const at::Tensor& values, const at::Tensor& scale, const at::Tensor& zero,
                   std::pair<int64_t, int64_t> steps, const uint64_t* seed) {
    at::Tensor result = zero.defined() ? (values - zero).div_(scale) : values / scale;
    if (seed != nullptr) result.add_(jitter(result, *seed));
    result.round_().clamp_(steps.first, steps.second).mul_(scale);
    return zero.defined() ? result.add_(zero) : result;
}

// Returns VALUES rounded to GRID in the ranges from LEAST to MOST.
at::Tensor on_range(const at::Tensor& values, const at::Tensor& least, const at::Tensor& most,
                    const Grid& grid) {
    const int64_t count = int64_t{1} << grid.bits;
    const uint64_t* const seed = grid.is_stochastic ? &grid.seed : nullptr;
    if (grid.is_symmetric) {
        const at::Tensor scale = at::maximum(least.abs(), most.abs()) * 2 / count;
        // Zeros stay zeros, whatever they are divided by.
        const at::Tensor divisor = at::where(scale == 0, at::ones_like(scale), scale);
        return rounded(values, divisor, {}, {-count / 2, count / 2 - 1}, seed);
    }
    const at::Tensor scale = (most - least) / count;
    const at::Tensor divisor = at::where(scale == 0, at::ones_like(scale), scale);
    const at::Tensor zero = at::where(scale == 0, least, (least / divisor).round() * divisor);
    return rounded(values, divisor, zero, {0, count - 1}, seed);
}

at::Tensor three_valued(const at::Tensor& values) {
    const auto numel = static_cast<double>(values.size(1));
    const at::Tensor least = at::linalg_vector_norm(values, 1, {1}, true).div(numel).mul(0.7);
    const at::Tensor size = values.abs();
    const at::Tensor mask = (size > least).to(at::kFloat);
    const at::Tensor count = mask.sum(1, true);
    const at::Tensor mean = (mask * size).sum(1, true) / count.clamp_min(1);
    return values.sign().mul_(mask).mul_(mean);
}

at::Tensor two_valued(const at::Tensor& values) {
    const auto numel = static_cast<double>(values.size(1));
    return values.sign().mul_(at::linalg_vector_norm(values, 1, {1}, true).div(numel));
}

at::Tensor on_grid_of_groups(const at::Tensor& values, const Grid& grid) {
    if (grid.bits == 1) return two_valued(values);
    if (grid.bits == 2) return three_valued(values);
    const auto [least, most] = at::aminmax(values, 1, true);
    return on_range(values, least, most, grid);
}

}  // namespace

at::Tensor on_grid(const at::Tensor& values, const Grid& grid) {
    DSL_CHECK(grid.groups > 0 && values.numel() % grid.groups == 0, "{} values in {} groups",
              values.numel(), grid.groups);
    if (values.numel() == 0) return values.clone();
    const at::Tensor groups = values.to(at::kFloat).reshape({grid.groups, -1});
    return on_grid_of_groups(groups, grid).view(values.sizes()).to(values.scalar_type());
}

at::Tensor on_grid_of_range(const at::Tensor& values, const at::Tensor& range, int64_t bits,
                            bool is_symmetric) {
    const Grid grid{bits, 1, is_symmetric};
    return on_range(values.to(at::kFloat), range[0], range[1], grid).to(values.scalar_type());
}

at::Tensor largest(const at::Tensor& scores, double ratio) {
    const at::Tensor flat = scores.reshape({-1});
    const auto count = static_cast<int64_t>(std::ceil(ratio * static_cast<double>(flat.numel())));
    at::Tensor mask = at::zeros({flat.numel()}, flat.options().dtype(at::kBool));
    const at::Tensor order = std::get<1>(at::sort(flat, /*stable=*/true, 0, /*descending=*/true));
    mask.index_fill_(0, order.slice(0, 0, count), true);
    return mask.view(scores.sizes());
}

}  // namespace dslaunch::graph
