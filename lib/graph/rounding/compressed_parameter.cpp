#include "graph/rounding/compressed_parameter.h"

#include <ATen/TensorOperators.h>

namespace dslaunch::graph {

at::Tensor WeightRounding::of(const at::Tensor& weight, int64_t updates, uint64_t seed) const {
    const config::BitState state = bits_after(schedule, updates);
    if (state.bits == 0) return weight;
    Grid now = grid;
    now.bits = state.bits;
    now.seed = seed;
    at::Tensor rounded =
        is_transposed ? on_grid(weight.t(), now).t().contiguous() : on_grid(weight, now);
    if (state.unrounded > 0)
        rounded =
            (weight * state.unrounded + rounded * (1 - state.unrounded)).to(weight.scalar_type());
    return rounded;
}

at::Tensor WeightMask::mask(const at::Tensor& source) const {
    return is_learned ? largest(source, ratio) : source;
}

at::Tensor WeightMask::spread(const at::Tensor& mask, const at::Tensor& values) const {
    if (sort == MaskSort::kElements) {
        const at::Tensor shaped = mask.view(is_transposed ? values.t().sizes() : values.sizes());
        return is_transposed ? shaped.t() : shaped;
    }
    if (sort == MaskSort::kHeads) {
        const int64_t columns = values.size(is_transposed ? 0 : 1);
        const at::Tensor spread = mask.reshape({-1}).repeat_interleave(columns / mask.numel());
        return is_transposed ? spread.unsqueeze(1) : spread.unsqueeze(0);
    }
    std::vector<int64_t> sizes(static_cast<size_t>(values.dim()), 1);
    (is_transposed ? sizes.back() : sizes.front()) = mask.numel();
    return mask.reshape(sizes);
}

at::Tensor CompressedParameter::read(
    const at::Tensor& values, int64_t updates, uint64_t seed,
    const std::function<at::Tensor(const WeightMask&)>& source_of) const {
    at::Tensor result = is_rounded ? rounding.of(values, updates, seed) : values;
    for (const WeightMask& mask : masks)
        if (mask.is_on(updates)) result = result * mask.spread(mask.mask(source_of(mask)), result);
    return result;
}

}  // namespace dslaunch::graph
