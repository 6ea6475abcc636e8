#include "graph/sharing/share_attention.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/_safe_softmax.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/full.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "graph/segment/autocast_mode.h"
#include "graph/sharing/share_of.h"
#include "graph/sharing/tensor_group.h"

namespace dslaunch::graph {

namespace {

// Returns an uninitialized dense tensor of SIZES whose strides have the order of X's strides, as
// at::empty_like does.
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

// Returns MASK in the form that is added to the scores of QUERY.
at::Tensor as_summand(const at::Tensor& mask, const at::Tensor& query) {
    if (!mask.defined() || mask.scalar_type() != at::kBool) return mask;
    return at::zeros_like(mask, query.options()).masked_fill(mask.logical_not(), -INFINITY);
}

double scale_of(const AttentionOptions& options, const at::Tensor& query) {
    return options.scale.value_or(1 / std::sqrt(static_cast<double>(query.size(-1))));
}

// Returns X with its heads repeated, so that it has HEADS heads.
at::Tensor repeated(const at::Tensor& x, int64_t heads) {
    return x.size(-3) == heads ? x : x.repeat_interleave(heads / x.size(-3), -3);
}

// Makes the mask that lets a query see only the keys up to its own position.
at::Tensor causal_mask(const AttentionOperands& operands, const AttentionOptions& options,
                       PartOf part) {
    const at::Tensor& query = operands.query;
    const bool by_positions = options.dim == query.dim() - 2;
    const int64_t rows = by_positions ? options.extent : query.size(-2);
    const at::Tensor mask =
        at::ones({rows, operands.key.size(-2)}, query.options().dtype(at::kBool)).tril();
    return by_positions ? share_of(mask, {0, {rows}}, part) : mask;
}

// Computes attention with dropout, by the formula that LibTorch uses on CPUs.
at::Tensor dropped(AttentionOperands operands, const AttentionOptions& options, PartOf part) {
    const at::Tensor& query = operands.query;
    if (options.repeats_heads) {
        operands.key = repeated(operands.key, query.size(-3));
        operands.value = repeated(operands.value, query.size(-3));
    }
    const double scale = std::sqrt(scale_of(options, query));
    at::Tensor scores = at::matmul(query * scale, (operands.key * scale).transpose(-2, -1));
    const at::Tensor mask = as_summand(operands.mask, query);
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
      is_enabled_(at::autocast::is_autocast_enabled(device_)) {
    if (!is_enabled_) return;
    const at::ScalarType dtype = at::autocast::get_autocast_dtype(device_);
    for (at::Tensor* operand : {&operands.query, &operands.key, &operands.value, &operands.mask})
        if (operand->defined() && operand->is_floating_point()) *operand = operand->to(dtype);
    at::autocast::set_autocast_enabled(device_, false);
}

AttentionInAutocast::~AttentionInAutocast() {
    at::autocast::set_autocast_enabled(device_, is_enabled_);
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
    if (options.is_causal) operands.mask = causal_mask(operands, options, part);
    if (options.dropout != 0) return dropped(std::move(operands), options, part);
    const at::Tensor& mask = operands.mask;
    return at::scaled_dot_product_attention(operands.query, operands.key, operands.value,
                                            mask.defined() ? std::optional(mask) : std::nullopt, 0,
                                            false, options.scale, options.repeats_heads);
}

using torch::autograd::AutogradContext;
using torch::autograd::Variable;
using torch::autograd::variable_list;

namespace {

// The settings with which every block of a ring is computed. All tensors have four dimensions.
struct Ring {
    TensorGroup* group = nullptr;
    int64_t site = 0;
    at::Tensor mask;  // undefined if there is none
    bool is_causal = false;
    double scale = 1;

    // Returns the rank whose block this rank has after STEP shifts.
    [[nodiscard]] int source(int step) const {
        return (group->rank() - step + group->size()) % group->size();
    }
    // Returns false if a causal query cannot see the block of SOURCE because all its keys come
    // later.
    [[nodiscard]] bool sees(int source) const { return !is_causal || source <= group->rank(); }
    [[nodiscard]] bool ends_at_itself(int source) const {
        return is_causal && source == group->rank();
    }
    [[nodiscard]] at::Tensor shift(const at::Tensor& mine) const {
        return group->shift(mine.contiguous(), site);
    }
};

at::ScalarType wide(const at::Tensor& x) {
    return at::isReducedFloatingType(x.scalar_type()) ? at::kFloat : x.scalar_type();
}

// Returns true if LibTorch's own kernel, which never stores the scores, supports these tensors.
bool has_kernel(const at::Tensor& query, const at::Tensor& value) {
    return query.device().is_cpu() && query.size(-1) == value.size(-1);
}

std::optional<at::Tensor> optional(const at::Tensor& mask) {
    return mask.defined() ? std::optional(mask) : std::nullopt;
}

// A block of keys and values, repeated for the heads of the queries, and its columns of the mask.
struct KeyBlock {
    at::Tensor key, value, mask;
    bool ends_at_itself = false;
};

// Returns the gradient of X. GRADIENT: the gradient of repeated(X).
at::Tensor sum_of_repeats(const at::Tensor& gradient, int64_t heads) {
    if (gradient.size(1) == heads) return gradient;
    std::vector<int64_t> sizes = gradient.sizes().vec();
    sizes.insert(sizes.begin() + 2, sizes[1] / heads);
    sizes[1] = heads;
    return gradient.reshape(sizes).sum(2);
}

KeyBlock block_of(const Ring& ring, int source, const at::Tensor& query, const at::Tensor& key,
                  const at::Tensor& value) {
    KeyBlock block{repeated(key, query.size(1)), repeated(value, query.size(1)), ring.mask,
                   ring.ends_at_itself(source)};
    if (block.mask.defined() && block.mask.size(-1) > 1)
        block.mask = block.mask.narrow(-1, source * key.size(2), key.size(2));
    return block;
}

at::Tensor scores_of(const Ring& ring, const at::Tensor& query, const KeyBlock& block) {
    const at::ScalarType dtype = wide(query);
    at::Tensor scores =
        at::matmul(query.to(dtype), block.key.to(dtype).transpose(-2, -1)) * ring.scale;
    if (block.mask.defined()) scores = scores + block.mask;
    if (!block.ends_at_itself) return scores;
    const at::Tensor later =
        at::ones({scores.size(-2), scores.size(-1)}, scores.options().dtype(at::kBool)).triu(1);
    return scores.masked_fill(later, -INFINITY);
}

// The result of attention to one block of keys. `log_sum` has a number for each query: the
// logarithm of the sum of the scores' exponentials, or -inf if the mask hides all keys of the
// block.
struct Attended {
    at::Tensor out, log_sum;
};

Attended attend(const Ring& ring, const at::Tensor& query, const KeyBlock& block) {
    if (has_kernel(query, block.value)) {
        auto [out, log_sum] = at::_scaled_dot_product_flash_attention_for_cpu(
            query, block.key, block.value, 0, block.ends_at_itself, optional(block.mask),
            ring.scale);
        // The kernel returns some finite number for a query from which the mask hides all keys of
        // the block.
        if (block.mask.defined())
            log_sum = log_sum.masked_fill(block.mask.amax(-1) == -INFINITY, -INFINITY);
        return {out, log_sum};
    }
    const at::Tensor scores = scores_of(ring, query, block);
    const at::Tensor most = scores.amax(-1, true);
    const at::Tensor chances = (scores - most.masked_fill(most == -INFINITY, 0.0)).exp();
    const at::Tensor sum = chances.sum(-1, true);
    const at::Tensor out = at::matmul(chances, block.value.to(scores.scalar_type()));
    return {out / sum.masked_fill(sum == 0, 1.0), (most + sum.log()).squeeze(-1)};
}

struct BlockGradients {
    at::Tensor query, key, value;
};

// Returns the gradients that pass through one block. ALL: the result of all blocks together.
BlockGradients attend_backward(const Ring& ring, const at::Tensor& gradient,
                               const at::Tensor& query, const KeyBlock& block,
                               const Attended& all) {
    if (has_kernel(query, block.value)) {
        auto [to_query, to_key, to_value] =
            at::_scaled_dot_product_flash_attention_for_cpu_backward(
                gradient, query, block.key, block.value, all.out, all.log_sum, 0,
                block.ends_at_itself, optional(block.mask), ring.scale);
        return {to_query, to_key, to_value};
    }
    const at::ScalarType dtype = wide(query);
    const at::Tensor from = gradient.to(dtype);
    const at::Tensor chances = (scores_of(ring, query, block) - all.log_sum.unsqueeze(-1)).exp();
    const at::Tensor to_chances = at::matmul(from, block.value.to(dtype).transpose(-2, -1));
    const at::Tensor to_scores =
        chances * (to_chances - (from * all.out.to(dtype)).sum(-1, true)) * ring.scale;
    return {at::matmul(to_scores, block.key.to(dtype)),
            at::matmul(to_scores.transpose(-2, -1), query.to(dtype)),
            at::matmul(chances.transpose(-2, -1), from)};
}

struct RingAttention : torch::autograd::Function<RingAttention> {
    static Variable forward(AutogradContext* context, const Variable& query, const Variable& key,
                            const Variable& value, const Ring& ring) {
        const at::ScalarType dtype = wide(query);
        const at::TensorOptions options = query.options().dtype(dtype);
        // MOST: the largest log_sum of the blocks so far. Each block has the factor exp(log_sum -
        // MOST). NUMERATOR: the sum of the blocks' outputs times their factors. DENOMINATOR: the
        // sum of the factors.
        at::Tensor most =
            at::full({query.size(0), query.size(1), query.size(2)}, -INFINITY, options);
        at::Tensor denominator = at::zeros_like(most);
        at::Tensor numerator =
            at::zeros({query.size(0), query.size(1), query.size(2), value.size(3)}, options);
        at::Tensor keys = key, values = value;
        for (int step = 0; step < ring.group->size(); ++step) {
            if (step > 0) {
                keys = ring.shift(keys);
                values = ring.shift(values);
            }
            const int source = ring.source(step);
            if (!ring.sees(source)) continue;
            const Attended part = attend(ring, query, block_of(ring, source, query, keys, values));
            const at::Tensor higher = at::maximum(most, part.log_sum);
            const at::Tensor base = higher.masked_fill(higher == -INFINITY, 0.0);
            const at::Tensor before = (most - base).exp(), now = (part.log_sum - base).exp();
            numerator.mul_(before.unsqueeze(-1)).addcmul_(part.out.to(dtype), now.unsqueeze(-1));
            denominator.mul_(before).add_(now);
            most = higher;
        }
        // A query from which the mask hides all keys gets zeros, and passes no gradient on.
        const at::Tensor empty = denominator == 0;
        const at::Tensor out = numerator.div_(denominator.masked_fill(empty, 1.0).unsqueeze(-1))
                                   .to(query.scalar_type());
        const at::Tensor log_sum = (most + denominator.log()).masked_fill(empty, INFINITY);
        context->save_for_backward({query, key, value, ring.mask, out, log_sum});
        context->saved_data["group"] = reinterpret_cast<int64_t>(ring.group);
        context->saved_data["site"] = ring.site;
        context->saved_data["causal"] = ring.is_causal;
        context->saved_data["scale"] = ring.scale;
        return out;
    }

    // Sends the gradients of a block around the ring together with the block. One more shift
    // returns them to the block's own rank.
    static variable_list backward(AutogradContext* context, variable_list gradients) {
        const variable_list saved = context->get_saved_variables();
        const Ring ring{reinterpret_cast<TensorGroup*>(context->saved_data["group"].toInt()),
                        context->saved_data["site"].toInt(), saved[3],
                        context->saved_data["causal"].toBool(),
                        context->saved_data["scale"].toDouble()};
        const at::Tensor& query = saved[0];
        at::Tensor keys = saved[1], values = saved[2];
        const Attended all{saved[4], saved[5]};
        const at::ScalarType dtype = wide(query);
        at::Tensor to_query = at::zeros(query.sizes(), query.options().dtype(dtype));
        at::Tensor to_keys = at::zeros(keys.sizes(), keys.options().dtype(dtype));
        at::Tensor to_values = at::zeros(values.sizes(), values.options().dtype(dtype));
        for (int step = 0; step < ring.group->size(); ++step) {
            if (step > 0) {
                keys = ring.shift(keys);
                values = ring.shift(values);
                to_keys = ring.shift(to_keys);
                to_values = ring.shift(to_values);
            }
            const int source = ring.source(step);
            if (!ring.sees(source)) continue;
            const BlockGradients part =
                attend_backward(ring, gradients[0].contiguous(), query,
                                block_of(ring, source, query, keys, values), all);
            to_query.add_(part.query);
            to_keys.add_(sum_of_repeats(part.key, keys.size(1)));
            to_values.add_(sum_of_repeats(part.value, values.size(1)));
        }
        return {to_query.to(query.scalar_type()),
                ring.shift(to_keys).to(keys.scalar_type()),
                ring.shift(to_values).to(values.scalar_type()),
                {}};
    }
};

}  // namespace

at::Tensor ring_attention(AttentionOperands operands, const AttentionOptions& options,
                          TensorGroup& group, int64_t site) {
    const AttentionInAutocast scope(operands);
    const bool batch = operands.query.dim() == 4;
    const auto four = [&](const at::Tensor& x) { return batch ? x : x.unsqueeze(0); };
    at::Tensor mask = as_summand(operands.mask, operands.query);
    while (mask.defined() && mask.dim() < 4) mask = mask.unsqueeze(0);
    const double scale = scale_of(options, operands.query);
    const Ring ring{&group, site, mask, options.is_causal, scale};
    const at::Tensor out =
        RingAttention::apply(four(operands.query), four(operands.key), four(operands.value), ring);
    return batch ? out : out.squeeze(0);
}

}  // namespace dslaunch::graph
