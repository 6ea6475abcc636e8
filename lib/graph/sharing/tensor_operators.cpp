#include "graph/sharing/tensor_operators.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Reduction.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/stack.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/full.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/ScalarType.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/jit/runtime/custom_operator.h>

#include <numeric>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "graph/segment/autocast_mode.h"
#include "graph/sharing/ring_attention.h"
#include "graph/sharing/share_attention.h"
#include "graph/sharing/share_of.h"
#include "graph/sharing/tensor_group.h"

namespace dslaunch::graph {

using torch::autograd::AutogradContext;
using torch::autograd::Variable;
using torch::autograd::variable_list;
using torch::jit::pop;
using torch::jit::push;
using torch::jit::Stack;

namespace {

TensorGroup*& group_of_thread() {
    thread_local TensorGroup* group = nullptr;
    return group;
}

TensorGroup& group() {
    TensorGroup* mine = group_of_thread();
    DSL_CHECK(mine != nullptr, "a graph with tensor collectives runs without a group");
    return *mine;
}

PartOf part_of(const TensorGroup& group) {
    return {group.rank(), group.size()};
}

// The place of a collective in the graph, and its group, which outlives the backward.
struct Site {
    TensorGroup* group;
    int64_t number;

    void save(AutogradContext& context) const {
        context.saved_data["group"] = reinterpret_cast<int64_t>(group);
        context.saved_data["site"] = number;
    }
    static Site saved(AutogradContext& context) {
        return {reinterpret_cast<TensorGroup*>(context.saved_data["group"].toInt()),
                context.saved_data["site"].toInt()};
    }
};

void save_shard(AutogradContext& context, const plan::TensorShard& shard, int64_t extent) {
    context.saved_data["dim"] = shard.dim;
    context.saved_data["blocks"] = fitted(shard, extent).blocks;
}

plan::TensorShard saved_shard(AutogradContext& context) {
    return {context.saved_data["dim"].toInt(), context.saved_data["blocks"].toIntVector()};
}

struct Copy : torch::autograd::Function<Copy> {
    static Variable forward(AutogradContext* context, const Variable& x, Site site) {
        site.save(*context);
        return x.view_as(x);
    }
    static variable_list backward(AutogradContext* context, variable_list gradients) {
        const Site site = Site::saved(*context);
        return {site.group->sum(gradients[0], site.number), {}};
    }
};

struct Reduce : torch::autograd::Function<Reduce> {
    static Variable forward(AutogradContext* /*context*/, const Variable& x, Site site) {
        return site.group->sum(x, site.number);
    }
    static variable_list backward(AutogradContext* /*context*/, variable_list gradients) {
        return {gradients[0], {}};
    }
};

// The whole of all ranks' X; the backward finds SHARD and SITE in CONTEXT.
at::Tensor gather_whole(AutogradContext& context, const at::Tensor& x,
                        const plan::TensorShard& shard, const Site& site) {
    const at::Tensor whole = whole_of(site.group->gather(x, site.number), shard);
    site.save(context);
    save_shard(context, shard, whole.size(shard.dim));
    return whole;
}

struct Gather : torch::autograd::Function<Gather> {
    static Variable forward(AutogradContext* context, const Variable& x,
                            const plan::TensorShard& shard, Site site) {
        return gather_whole(*context, x, shard, site);
    }
    static variable_list backward(AutogradContext* context, variable_list gradients) {
        const PartOf part = part_of(*Site::saved(*context).group);
        return {share_of(gradients[0], saved_shard(*context), part), {}, {}};
    }
};

struct Share : torch::autograd::Function<Share> {
    static Variable forward(AutogradContext* context, const Variable& x,
                            const plan::TensorShard& shard, TensorGroup* group) {
        Site{group, 0}.save(*context);
        save_shard(*context, shard, x.size(shard.dim));
        return share_of(x, shard, part_of(*group));
    }
    static variable_list backward(AutogradContext* context, variable_list gradients) {
        const plan::TensorShard shard = saved_shard(*context);
        const at::Tensor& gradient = gradients[0];
        std::vector<int64_t> sizes = gradient.sizes().vec();
        sizes[shard.dim] = std::accumulate(shard.blocks.begin(), shard.blocks.end(), int64_t{0});
        at::Tensor whole = at::zeros(sizes, gradient.options());
        int64_t from = 0;
        for (const Range& range :
             plan::shard_ranges(shard, part_of(*Site::saved(*context).group))) {
            whole.narrow(shard.dim, range.begin, range.numel)
                .copy_(gradient.narrow(shard.dim, from, range.numel));
            from += range.numel;
        }
        return {whole, {}, {}};
    }
};

// This rank's share of the sum of all ranks' WHOLE, added in rank order.
at::Tensor share_of_sum(const at::Tensor& whole, const plan::TensorShard& shard, const Site& site) {
    std::vector<at::Tensor> parts;
    for (int rank = 0; rank < site.group->size(); ++rank)
        parts.push_back(share_of(whole, shard, {rank, site.group->size()}));
    const std::vector<at::Tensor> terms = site.group->exchange(parts, site.number);
    const bool narrow = at::isReducedFloatingType(whole.scalar_type());
    at::Tensor total = narrow ? terms[0].to(at::kFloat) : terms[0];
    for (size_t rank = 1; rank < terms.size(); ++rank) total.add_(terms[rank]);
    return narrow ? total.to(whole.scalar_type()) : total;
}

struct AllGather : torch::autograd::Function<AllGather> {
    static Variable forward(AutogradContext* context, const Variable& x,
                            const plan::TensorShard& shard, Site site) {
        return gather_whole(*context, x, shard, site);
    }
    static variable_list backward(AutogradContext* context, variable_list gradients) {
        return {share_of_sum(gradients[0], saved_shard(*context), Site::saved(*context)), {}, {}};
    }
};

struct Scatter : torch::autograd::Function<Scatter> {
    static Variable forward(AutogradContext* context, const Variable& x,
                            const plan::TensorShard& shard, Site site) {
        site.save(*context);
        save_shard(*context, shard, x.size(shard.dim));
        return share_of(x, shard, part_of(*site.group));
    }
    static variable_list backward(AutogradContext* context, variable_list gradients) {
        const Site site = Site::saved(*context);
        return {whole_of(site.group->gather(gradients[0].contiguous(), site.number),
                         saved_shard(*context)),
                {},
                {}};
    }
};

struct ReduceScatter : torch::autograd::Function<ReduceScatter> {
    static Variable forward(AutogradContext* context, const Variable& x,
                            const plan::TensorShard& shard, Site site) {
        site.save(*context);
        save_shard(*context, shard, x.size(shard.dim));
        return share_of_sum(x, shard, site);
    }
    static variable_list backward(AutogradContext* context, variable_list gradients) {
        return Scatter::backward(context, std::move(gradients));
    }
};

// X, split along FROM before, along TO afterwards.
at::Tensor exchange(const at::Tensor& x, int64_t from, int64_t to, const Site& site) {
    const int64_t size = site.group->size();
    if (x.size(to) % size != 0)
        fail(ExitCode::kInput, "{} elements of dimension {} do not divide among {} ranks",
             x.size(to), to, size);
    std::vector<at::Tensor> parts;
    for (const at::Tensor& part : x.chunk(size, to)) parts.push_back(part.contiguous());
    return at::cat(site.group->exchange(parts, site.number), from);
}

struct Exchange : torch::autograd::Function<Exchange> {
    static Variable forward(AutogradContext* context, const Variable& x, int64_t from, int64_t to,
                            Site site) {
        site.save(*context);
        context->saved_data["from"] = from;
        context->saved_data["to"] = to;
        return exchange(x, from, to, site);
    }
    static variable_list backward(AutogradContext* context, variable_list gradients) {
        return {exchange(gradients[0], context->saved_data["to"].toInt(),
                         context->saved_data["from"].toInt(), Site::saved(*context)),
                {},
                {},
                {}};
    }
};

struct LossOptions {
    int64_t reduction = at::Reduction::Mean;
    int64_t ignored = -100;
    int64_t classes = 0;
    Site site{};
};

// Cross entropy as in Megatron-LM (arXiv:1909.08053, section 3): the largest logit and the sum of
// exponentials of each row come from all ranks, the target's logit from the one that has it.
struct CrossEntropy : torch::autograd::Function<CrossEntropy> {
    static Variable forward(AutogradContext* context, const Variable& logits,
                            const Variable& target, const LossOptions& options) {
        TensorGroup& group = *options.site.group;
        const int64_t site = options.site.number;
        const Range mine = plan::shard_ranges({0, {options.classes}}, part_of(group)).front();
        const at::Tensor most = mine.numel > 0
                                    ? std::get<0>(logits.max(1))
                                    : at::full({logits.size(0)}, -INFINITY, logits.options());
        at::Tensor share = (logits - group.max(most, site).unsqueeze(1));
        const at::Tensor counts = target.ne(options.ignored);
        const at::Tensor local = target - mine.begin;
        const at::Tensor owned = counts & local.ge(0) & local.lt(mine.numel);
        const at::Tensor index = local.clamp(0, std::max<int64_t>(0, mine.numel - 1))
                                     .masked_fill(~owned, 0)
                                     .unsqueeze(1);
        at::Tensor hit = mine.numel > 0 ? share.gather(1, index).squeeze(1).masked_fill(~owned, 0.0)
                                        : at::zeros_like(most);
        share = share.exp();
        const at::Tensor sums = group.sum(at::stack({share.sum(1), hit}), site);
        at::Tensor loss = (sums[0].log() - sums[1]).masked_fill(~counts, 0.0);
        at::Tensor scale = counts.to(loss.scalar_type());  // weight of each row's loss in the
                                                           // result
        // Without a target the loss is 0, and so are its gradients.
        if (options.reduction == at::Reduction::Mean) scale = scale / scale.sum().clamp_min(1);
        if (options.reduction != at::Reduction::None) loss = (loss * scale).sum();
        share.div_(sums[0].unsqueeze(1));
        context->save_for_backward({share, index, owned, scale});
        return loss;
    }
    static variable_list backward(AutogradContext* context, variable_list gradients) {
        const variable_list saved = context->get_saved_variables();
        at::Tensor gradient = saved[0].clone();
        if (gradient.size(1) > 0)
            gradient.scatter_add_(1, saved[1],
                                  saved[2].to(gradient.scalar_type()).neg().unsqueeze(1));
        gradient.mul_((saved[3] * gradients[0]).unsqueeze(1));
        return {gradient, {}, {}};
    }
};

std::vector<int64_t> pop_ints(Stack& stack) {
    return pop(stack).toIntVector();
}

void copy_operator(Stack& stack) {
    const int64_t site = pop(stack).toInt();
    push(stack, Copy::apply(pop(stack).toTensor(), Site{&group(), site}));
}

void reduce_operator(Stack& stack) {
    const int64_t site = pop(stack).toInt();
    push(stack, Reduce::apply(pop(stack).toTensor(), Site{&group(), site}));
}

void share_operator(Stack& stack) {
    std::vector<int64_t> blocks = pop_ints(stack);
    const int64_t dim = pop(stack).toInt();
    push(stack,
         Share::apply(pop(stack).toTensor(), plan::TensorShard{dim, std::move(blocks)}, &group()));
}

template <typename Collective>
void shard_operator(Stack& stack) {
    const int64_t site = pop(stack).toInt();
    std::vector<int64_t> blocks = pop_ints(stack);
    const int64_t dim = pop(stack).toInt();
    push(stack, Collective::apply(pop(stack).toTensor(), plan::TensorShard{dim, std::move(blocks)},
                                  Site{&group(), site}));
}

void exchange_operator(Stack& stack) {
    const int64_t site = pop(stack).toInt();
    const int64_t to = pop(stack).toInt();
    const int64_t from = pop(stack).toInt();
    push(stack, Exchange::apply(pop(stack).toTensor(), from, to, Site{&group(), site}));
}

void row_loss_operator(Stack& stack) {
    std::vector<int64_t> blocks = pop_ints(stack);
    const int64_t dim = pop(stack).toInt();
    const double smoothing = pop(stack).toDouble();
    const int64_t ignored = pop(stack).toInt();
    const int64_t reduction = pop(stack).toInt();
    const at::Tensor target = pop(stack).toTensor();
    const at::Tensor logits = pop(stack).toTensor();
    const at::Tensor mine = share_of(target, {dim, std::move(blocks)}, part_of(group()));
    at::Tensor loss =
        at::cross_entropy_loss(logits, mine, {}, at::Reduction::Sum, ignored, smoothing);
    if (reduction == at::Reduction::Mean) loss = loss / target.ne(ignored).sum().clamp_min(1);
    push(stack, loss);
}

// The rows of embeddings, by plain operators that autograd knows.
void embedding_operator(Stack& stack) {
    const int64_t rows = pop(stack).toInt();
    int64_t padding = pop(stack).toInt();
    const at::Tensor indices = pop(stack).toTensor();
    const at::Tensor weight = pop(stack).toTensor();
    const Range mine = plan::shard_ranges({0, {rows}}, part_of(group())).front();
    const at::Tensor local = indices - mine.begin;
    const at::Tensor foreign = local.lt(0) | local.ge(mine.numel);
    if (foreign.numel() > 0) {
        // at::embedding would refuse an index out of range; here every rank would take it for
        // another rank's.
        const at::Tensor ends = at::stack({indices.min(), indices.max()}).cpu();
        if (ends[0].item<int64_t>() < 0 || ends[1].item<int64_t>() >= rows)
            fail(ExitCode::kInput, "an index of the embedding is outside of its {} rows: {} to {}",
                 rows, ends[0].item<int64_t>(), ends[1].item<int64_t>());
    }
    padding = padding >= mine.begin && padding < mine.end() ? padding - mine.begin : -1;
    if (mine.numel == 0) {  // fewer rows than ranks
        std::vector<int64_t> sizes = indices.sizes().vec();
        sizes.push_back(weight.size(1));
        push(stack, at::zeros(sizes, weight.options()) + weight.sum());
        return;
    }
    const at::Tensor found = at::embedding(weight, local.masked_fill(foreign, 0), padding);
    push(stack, found.masked_fill(foreign.unsqueeze(-1), 0.0));
}

void cross_entropy_operator(Stack& stack) {
    LossOptions options;
    options.site = {&group(), pop(stack).toInt()};
    options.classes = pop(stack).toInt();
    options.ignored = pop(stack).toInt();
    options.reduction = pop(stack).toInt();
    const at::Tensor target = pop(stack).toTensor();
    at::Tensor logits = pop(stack).toTensor();
    // The loss is computed in fp32, whatever the logits' dtype, as under autocast.
    const bool widen = at::isReducedFloatingType(logits.scalar_type());
    const at::ScalarType dtype = logits.scalar_type();
    const bool autocast = at::autocast::is_autocast_enabled(logits.device().type());
    if (widen) logits = logits.to(at::kFloat);
    at::Tensor loss = CrossEntropy::apply(logits, target, options);
    push(stack, widen && !autocast ? loss.to(dtype) : loss);
}

void dropout_operator(Stack& stack) {
    std::vector<int64_t> blocks = pop_ints(stack);
    const int64_t dim = pop(stack).toInt();
    const bool train = pop(stack).toBool();
    const double p = pop(stack).toDouble();
    const at::Tensor x = pop(stack).toTensor();
    if (!train || p == 0) {
        push(stack, x);
        return;
    }
    std::vector<int64_t> sizes = x.sizes().vec();
    int64_t& extent = sizes[dim];
    extent = blocks.size() == 1 ? extent * group().size()
                                : whole_extent(blocks, extent, part_of(group()));
    push(stack, x * share_of_noise(x, sizes, p, {dim, std::move(blocks)}, part_of(group())));
}

void attention_operator(Stack& stack) {
    AttentionOptions options;
    options.extent = pop(stack).toInt();
    options.dim = pop(stack).toInt();
    options.repeats_heads = pop(stack).toBool();
    options.scale = pop(stack).toOptional<double>();
    options.causal = pop(stack).toBool();
    options.dropout = pop(stack).toDouble();
    AttentionOperands operands;
    if (const auto mask = pop(stack).toOptional<at::Tensor>()) operands.mask = *mask;
    operands.value = pop(stack).toTensor();
    operands.key = pop(stack).toTensor();
    operands.query = pop(stack).toTensor();
    push(stack, attention_of_share(operands, options, part_of(group())));
}

void ring_attention_operator(Stack& stack) {
    const int64_t site = pop(stack).toInt();
    AttentionOptions options;
    options.repeats_heads = pop(stack).toBool();
    options.scale = pop(stack).toOptional<double>();
    options.causal = pop(stack).toBool();
    AttentionOperands operands;
    if (const auto mask = pop(stack).toOptional<at::Tensor>()) operands.mask = *mask;
    operands.value = pop(stack).toTensor();
    operands.key = pop(stack).toTensor();
    operands.query = pop(stack).toTensor();
    push(stack, ring_attention(std::move(operands), options, group(), site));
}

bool is_even(const std::vector<int64_t>& blocks) {
    return plan::divides_evenly({0, blocks}, group().size());
}

void extent_operator(Stack& stack) {
    const std::vector<int64_t> blocks = pop_ints(stack);
    const int64_t extent = pop(stack).toInt();
    push(stack, is_even(blocks) ? extent * group().size()
                                : whole_extent(blocks, extent, part_of(group())));
}

void shape_operator(Stack& stack) {
    const std::vector<int64_t> blocks = pop_ints(stack);
    const int64_t dim = pop(stack).toInt();
    std::vector<int64_t> shape = pop_ints(stack);
    int64_t& extent = shape.at(static_cast<size_t>(dim));
    if (!is_even(blocks)) {
        const plan::TensorShard shard =
            extent == -1 ? plan::TensorShard{0, blocks} : fitted({0, blocks}, extent);
        extent = 0;
        for (const Range& range : plan::shard_ranges(shard, part_of(group())))
            extent += range.numel;
    } else if (extent != -1) {
        if (extent % group().size() != 0)
            fail(ExitCode::kInput, "{} elements of dimension {} do not divide among {} ranks",
                 extent, dim, group().size());
        extent /= group().size();
    }
    push(stack, std::move(shape));
}

}  // namespace

void register_tensor_operators() {
    using torch::jit::Operator;
    constexpr auto kPure = c10::AliasAnalysisKind::FROM_SCHEMA;
    static const torch::jit::RegisterOperators operators({
        Operator("dslaunch::tensor_copy(Tensor(a) x, int site) -> Tensor(a)", copy_operator, kPure),
        Operator("dslaunch::tensor_reduce(Tensor x, int site) -> Tensor", reduce_operator, kPure),
        Operator("dslaunch::tensor_gather(Tensor x, int dim, int[] blocks, int site) -> Tensor",
                 shard_operator<Gather>, kPure),
        Operator("dslaunch::tensor_all_gather(Tensor x, int dim, int[] blocks, int site) -> Tensor",
                 shard_operator<AllGather>, kPure),
        Operator("dslaunch::tensor_scatter(Tensor x, int dim, int[] blocks, int site) -> Tensor",
                 shard_operator<Scatter>, kPure),
        Operator("dslaunch::tensor_reduce_scatter(Tensor x, int dim, int[] blocks, int site) -> "
                 "Tensor",
                 shard_operator<ReduceScatter>, kPure),
        Operator("dslaunch::tensor_exchange(Tensor x, int from, int to, int site) -> Tensor",
                 exchange_operator, kPure),
        Operator("dslaunch::tensor_row_loss(Tensor logits, Tensor target, int reduction, int "
                 "ignored, float smoothing, int dim, int[] blocks) -> Tensor",
                 row_loss_operator, kPure),
        Operator("dslaunch::tensor_share(Tensor x, int dim, int[] blocks) -> Tensor",
                 share_operator, kPure),
        Operator("dslaunch::tensor_embedding(Tensor weight, Tensor indices, int padding, int rows) "
                 "-> Tensor",
                 embedding_operator, kPure),
        Operator("dslaunch::tensor_cross_entropy(Tensor logits, Tensor target, int reduction, int "
                 "ignored, int classes, int site) -> Tensor",
                 cross_entropy_operator, kPure),
        Operator(
            "dslaunch::tensor_dropout(Tensor(a) x, float p, bool train, int dim, int[] blocks) "
            "-> Tensor(a)",
            dropout_operator, kPure),
        Operator("dslaunch::tensor_attention(Tensor query, Tensor key, Tensor value, Tensor? "
                 "attn_mask, float dropout_p, bool is_causal, float? scale, bool enable_gqa, int "
                 "dim, int extent) -> Tensor",
                 attention_operator, kPure),
        Operator("dslaunch::tensor_ring_attention(Tensor query, Tensor key, Tensor value, Tensor? "
                 "attn_mask, bool is_causal, float? scale, bool enable_gqa, int site) -> Tensor",
                 ring_attention_operator, kPure),
        Operator("dslaunch::tensor_extent(int extent, int[] blocks) -> int", extent_operator,
                 kPure),
        Operator("dslaunch::tensor_shape(int[] shape, int dim, int[] blocks) -> int[]",
                 shape_operator, kPure),
    });
}

TensorGroupScope::TensorGroupScope(TensorGroup* group)
    : before_(std::exchange(group_of_thread(), group)) {}

TensorGroupScope::~TensorGroupScope() {
    group_of_thread() = before_;
}

}  // namespace dslaunch::graph
