#include "graph/sharing/share_attention.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/_safe_softmax.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "graph/segment/autocast_mode.h"
#include "graph/sharing/share_of.h"

namespace dslaunch::graph {

namespace {

// Dense sizes and strides in the order of X's strides, as at::empty_like gives them.
at::Tensor empty_whole(const at::Tensor& x, const std::vector<int64_t>& sizes) {
    std::vector<int64_t> order(sizes.size());
    std::iota(order.begin(), order.end(), int64_t{0});
    std::stable_sort(order.begin(), order.end(),
                     [&](int64_t a, int64_t b) { return x.stride(a) > x.stride(b); });
    std::vector<int64_t> strides(sizes.size());
    int64_t stride = 1;
    for (size_t i = order.size(); i-- > 0;) {
        strides[order[i]] = stride;
        stride *= sizes[order[i]];
    }
    return at::empty_strided(sizes, strides, x.options().requires_grad(false));
}

// A query sees the keys up to its own place.
at::Tensor causal_mask(const AttentionOperands& operands, const AttentionOptions& options,
                       PartOf part) {
    const at::Tensor& query = operands.query;
    const bool by_positions = options.dim == query.dim() - 2;
    const int64_t rows = by_positions ? options.extent : query.size(-2);
    const at::Tensor mask =
        at::ones({rows, operands.key.size(-2)}, query.options().dtype(at::kBool)).tril();
    return by_positions ? share_of(mask, {0, {rows}}, part) : mask;
}

// The formula by which LibTorch computes attention with dropout on processors.
at::Tensor dropped(AttentionOperands operands, const AttentionOptions& options, PartOf part) {
    const at::Tensor& query = operands.query;
    if (options.repeats_heads && operands.key.size(-3) != query.size(-3)) {
        const int64_t times = query.size(-3) / operands.key.size(-3);
        operands.key = operands.key.repeat_interleave(times, -3);
        operands.value = operands.value.repeat_interleave(times, -3);
    }
    const double scale =
        std::sqrt(options.scale.value_or(1 / std::sqrt(static_cast<double>(query.size(-1)))));
    at::Tensor scores = at::matmul(query * scale, (operands.key * scale).transpose(-2, -1));
    at::Tensor mask = operands.mask;
    if (mask.defined() && mask.scalar_type() == at::kBool)
        mask = at::zeros_like(mask, query.options()).masked_fill(mask.logical_not(), -INFINITY);
    if (mask.defined()) scores = scores + mask;
    const at::Tensor chances = at::_safe_softmax(scores, -1);
    std::vector<int64_t> sizes = chances.sizes().vec();
    sizes[static_cast<size_t>(options.dim)] = options.extent;
    const at::Tensor noise =
        share_of_noise(chances, sizes, options.dropout, {options.dim, {options.extent}}, part);
    return at::matmul(chances * noise, operands.value);
}

}  // namespace

AttentionInAutocast::AttentionInAutocast(AttentionOperands& operands)
    : device_(operands.query.device().type()),
      enabled_(at::autocast::is_autocast_enabled(device_)) {
    if (!enabled_) return;
    const at::ScalarType dtype = at::autocast::get_autocast_dtype(device_);
    for (at::Tensor* operand : {&operands.query, &operands.key, &operands.value, &operands.mask})
        if (operand->defined() && operand->is_floating_point()) *operand = operand->to(dtype);
    at::autocast::set_autocast_enabled(device_, false);
}

AttentionInAutocast::~AttentionInAutocast() {
    at::autocast::set_autocast_enabled(device_, enabled_);
}

at::Tensor share_of_noise(const at::Tensor& x, const std::vector<int64_t>& sizes, double dropout,
                          const plan::TensorShard& shard, PartOf part) {
    at::Tensor noise = empty_whole(x, sizes).bernoulli_(1 - dropout);
    noise.div_(1 - dropout);
    return share_of(noise, shard, part);
}

at::Tensor attention_of_share(AttentionOperands operands, const AttentionOptions& options,
                              PartOf part) {
    const AttentionInAutocast scope(operands);
    if (options.causal) operands.mask = causal_mask(operands, options, part);
    if (options.dropout != 0) return dropped(std::move(operands), options, part);
    const at::Tensor& mask = operands.mask;
    return at::scaled_dot_product_attention(operands.query, operands.key, operands.value,
                                            mask.defined() ? std::optional(mask) : std::nullopt, 0,
                                            false, options.scale, options.repeats_heads);
}

}  // namespace dslaunch::graph
