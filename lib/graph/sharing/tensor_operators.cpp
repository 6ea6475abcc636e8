#include "graph/sharing/tensor_operators.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Reduction.h>
#include <ATen/core/stack.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/full.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/jit/runtime/custom_operator.h>

#include <numeric>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "graph/segment/autocast_mode.h"
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
    DSL_CHECK(mine != nullptr, "a graph with tensor collectives cannot run without a tensor group");
    return *mine;
}

PartOf part_of(const TensorGroup& group) {
    return {group.rank(), group.size()};
}

// The result that a collective computes from a tensor.
enum class Way : uint8_t {
    kSame,
    kSum,         // the sum of the ranks' tensors
    kWhole,       // the whole, joined from all ranks' shares
    kShare,       // the rank's share
    kSpread,      // the rank's share, padded with zeros to the whole
    kShareOfSum,  // the rank's share of the sum of the ranks' tensors, added in rank order
    kExchange,    // split along another dimension
};

// A collective: its operations in forward and backward, and its place in the graph. Its group
// outlives the backward.
struct How final : torch::CustomClassHolder {
    Way forward = Way::kSame, backward = Way::kSame;
    int64_t site = 0;         // its place in the graph
    plan::TensorShard shard;  // for an exchange: the dimension along which x is split before
    int64_t to = 0;           // for an exchange: the dimension along which x is split after
    TensorGroup* group = nullptr;

    [[nodiscard]] PartOf part() const { return part_of(*group); }
};

at::Tensor spread(const at::Tensor& share, const How& how) {
    const int64_t dim = how.shard.dim;
    std::vector<int64_t> sizes = share.sizes().vec();
    sizes[dim] = std::accumulate(how.shard.blocks.begin(), how.shard.blocks.end(), int64_t{0});
    at::Tensor whole = at::zeros(sizes, share.options());
    int64_t from = 0;
    for (const Range& range : plan::shard_ranges(how.shard, how.part())) {
        whole.narrow(dim, range.begin, range.numel).copy_(share.narrow(dim, from, range.numel));
        from += range.numel;
    }
    return whole;
}

at::Tensor share_of_sum(const at::Tensor& whole, const How& how) {
    std::vector<at::Tensor> parts;
    for (int rank = 0; rank < how.group->size(); ++rank)
        parts.push_back(share_of(whole, how.shard, {rank, how.group->size()}));
    const std::vector<at::Tensor> terms = how.group->exchange(parts, how.site);
    const bool narrow = at::isReducedFloatingType(whole.scalar_type());
    at::Tensor total = narrow ? terms[0].to(at::kFloat) : terms[0];
    for (size_t rank = 1; rank < terms.size(); ++rank) total.add_(terms[rank]);
    return narrow ? total.to(whole.scalar_type()) : total;
}

// Returns X split along TO instead of FROM.
at::Tensor exchange(const at::Tensor& x, int64_t from, int64_t to, const How& how) {
    const int64_t size = how.group->size();
    if (x.size(to) % size != 0)
        fail(ExitCode::kInput,
             "{} elements of dimension {} cannot be divided evenly among {} ranks", x.size(to), to,
             size);
    std::vector<at::Tensor> parts;
    for (const at::Tensor& part : x.chunk(size, to)) parts.push_back(part.contiguous());
    return at::cat(how.group->exchange(parts, how.site), from);
}

at::Tensor collected(const at::Tensor& x, Way way, const How& how) {
    switch (way) {
        case Way::kSame:
        case Way::kExchange:  // handled by the callers, which know its direction
            break;
        case Way::kSum:
            return how.group->sum(x, how.site);
        case Way::kWhole:
            return whole_of(how.group->gather(x, how.site), how.shard);
        case Way::kShare:
            return share_of(x, how.shard, how.part());
        case Way::kSpread:
            return spread(x, how);
        case Way::kShareOfSum:
            return share_of_sum(x, how);
    }
    return x;
}

struct Collective : torch::autograd::Function<Collective> {
    static Variable forward(AutogradContext* context, const Variable& x,
                            const c10::intrusive_ptr<How>& how) {
        context->saved_data["how"] = c10::IValue::make_capsule(how);
        if (how->forward == Way::kSame) return x.view_as(x);
        if (how->forward == Way::kExchange) return exchange(x, how->shard.dim, how->to, *how);
        const at::Tensor out = collected(x, how->forward, *how);
        // Fits the shard's blocks to the size of the whole tensor, because backward uses the
        // blocks.
        const at::Tensor& whole = how->forward == Way::kWhole ? out : x;
        if (!how->shard.blocks.empty()) how->shard = fitted(how->shard, whole.size(how->shard.dim));
        return out;
    }
    static variable_list backward(AutogradContext* context, variable_list gradients) {
        const auto held = context->saved_data["how"].toCapsule();
        const How& how = static_cast<const How&>(*held);
        const at::Tensor& gradient = gradients[0];
        if (how.backward == Way::kExchange)
            return {exchange(gradient, how.to, how.shard.dim, how), {}};
        return {collected(how.backward == Way::kWhole ? gradient.contiguous() : gradient,
                          how.backward, how),
                {}};
    }
};

struct LossOptions {
    int64_t reduction = at::Reduction::Mean;
    int64_t ignored = -100;
    int64_t classes = 0;
    int64_t site = 0;
    TensorGroup* group = nullptr;
};

// Cross entropy as in Megatron-LM (arXiv:1909.08053, section 3): the largest logit and the sum of
// exponentials of each row are taken over all ranks; the target's logit comes from the rank that
// has it.
struct CrossEntropy : torch::autograd::Function<CrossEntropy> {
    static Variable forward(AutogradContext* context, const Variable& logits,
                            const Variable& target, const LossOptions& options) {
        TensorGroup& group = *options.group;
        const int64_t site = options.site;
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
        at::Tensor scale = counts.to(loss.scalar_type());  // the weight of each row's loss
        // Without a target, the loss and its gradients are 0.
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

// Returns a new collective of this thread's group.
c10::intrusive_ptr<How> collective(Way forward, Way backward, int64_t site) {
    auto how = c10::make_intrusive<How>();
    how->forward = forward;
    how->backward = backward;
    how->site = site;
    how->group = &group();
    return how;
}

template <Way kForward, Way kBackward>
void plain_operator(Stack& stack) {
    const auto how = collective(kForward, kBackward, pop(stack).toInt());
    push(stack, Collective::apply(pop(stack).toTensor(), how));
}

// Runs a collective that splits or joins a tensor. kHasSite is false if the operator communicates
// with no other rank, and therefore has no argument for its site.
template <Way kForward, Way kBackward, bool kHasSite = true>
void shard_operator(Stack& stack) {
    const auto how = collective(kForward, kBackward, kHasSite ? pop(stack).toInt() : 0);
    how->shard.blocks = pop_ints(stack);
    how->shard.dim = pop(stack).toInt();
    push(stack, Collective::apply(pop(stack).toTensor(), how));
}

void exchange_operator(Stack& stack) {
    const auto how = collective(Way::kExchange, Way::kExchange, pop(stack).toInt());
    how->to = pop(stack).toInt();
    how->shard.dim = pop(stack).toInt();
    push(stack, Collective::apply(pop(stack).toTensor(), how));
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

// Looks up rows of embeddings with plain operators, which autograd can differentiate.
void embedding_operator(Stack& stack) {
    const int64_t rows = pop(stack).toInt();
    int64_t padding = pop(stack).toInt();
    const at::Tensor indices = pop(stack).toTensor();
    const at::Tensor weight = pop(stack).toTensor();
    const Range mine = plan::shard_ranges({0, {rows}}, part_of(group())).front();
    const at::Tensor local = indices - mine.begin;
    const at::Tensor foreign = local.lt(0) | local.ge(mine.numel);
    if (foreign.numel() > 0) {
        // at::embedding would refuse an index out of range, but here every rank would assume that
        // the index belongs to another rank.
        const at::Tensor ends = at::stack({indices.min(), indices.max()}).cpu();
        if (ends[0].item<int64_t>() < 0 || ends[1].item<int64_t>() >= rows)
            fail(ExitCode::kInput, "the embedding has {} rows, but its indices range from {} to {}",
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
    options.group = &group();
    options.site = pop(stack).toInt();
    options.classes = pop(stack).toInt();
    options.ignored = pop(stack).toInt();
    options.reduction = pop(stack).toInt();
    const at::Tensor target = pop(stack).toTensor();
    at::Tensor logits = pop(stack).toTensor();
    // The loss is computed in fp32 whatever the dtype of the logits, as under autocast.
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

// Pops query, key, value and mask, the first arguments of attention.
AttentionOperands pop_operands(Stack& stack) {
    AttentionOperands operands;
    if (const auto mask = pop(stack).toOptional<at::Tensor>()) operands.mask = *mask;
    operands.value = pop(stack).toTensor();
    operands.key = pop(stack).toTensor();
    operands.query = pop(stack).toTensor();
    return operands;
}

void attention_operator(Stack& stack) {
    AttentionOptions options;
    options.extent = pop(stack).toInt();
    options.dim = pop(stack).toInt();
    options.repeats_heads = pop(stack).toBool();
    options.scale = pop(stack).toOptional<double>();
    options.is_causal = pop(stack).toBool();
    options.dropout = pop(stack).toDouble();
    push(stack, attention_of_share(pop_operands(stack), options, part_of(group())));
}

void ring_attention_operator(Stack& stack) {
    const int64_t site = pop(stack).toInt();
    AttentionOptions options;
    options.repeats_heads = pop(stack).toBool();
    options.scale = pop(stack).toOptional<double>();
    options.is_causal = pop(stack).toBool();
    push(stack, ring_attention(pop_operands(stack), options, group(), site));
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
            fail(ExitCode::kInput,
                 "{} elements of dimension {} cannot be divided evenly among {} ranks", extent, dim,
                 group().size());
        extent /= group().size();
    }
    push(stack, std::move(shape));
}

}  // namespace

void register_tensor_operators() {
    using torch::jit::Operator;
    constexpr auto kPure = c10::AliasAnalysisKind::FROM_SCHEMA;
    static const torch::jit::RegisterOperators operators({
        Operator("dslaunch::tensor_copy(Tensor(a) x, int site) -> Tensor(a)",
                 plain_operator<Way::kSame, Way::kSum>, kPure),
        Operator("dslaunch::tensor_reduce(Tensor x, int site) -> Tensor",
                 plain_operator<Way::kSum, Way::kSame>, kPure),
        Operator("dslaunch::tensor_gather(Tensor x, int dim, int[] blocks, int site) -> Tensor",
                 shard_operator<Way::kWhole, Way::kShare>, kPure),
        Operator("dslaunch::tensor_all_gather(Tensor x, int dim, int[] blocks, int site) -> Tensor",
                 shard_operator<Way::kWhole, Way::kShareOfSum>, kPure),
        Operator("dslaunch::tensor_scatter(Tensor x, int dim, int[] blocks, int site) -> Tensor",
                 shard_operator<Way::kShare, Way::kWhole>, kPure),
        Operator("dslaunch::tensor_reduce_scatter(Tensor x, int dim, int[] blocks, int site) -> "
                 "Tensor",
                 shard_operator<Way::kShareOfSum, Way::kWhole>, kPure),
        Operator("dslaunch::tensor_exchange(Tensor x, int from, int to, int site) -> Tensor",
                 exchange_operator, kPure),
        Operator("dslaunch::tensor_row_loss(Tensor logits, Tensor target, int reduction, int "
                 "ignored, float smoothing, int dim, int[] blocks) -> Tensor",
                 row_loss_operator, kPure),
        Operator("dslaunch::tensor_share(Tensor x, int dim, int[] blocks) -> Tensor",
                 shard_operator<Way::kShare, Way::kSpread, false>, kPure),
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
