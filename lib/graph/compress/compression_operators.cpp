#include "graph/compress/compression_operators.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/core/stack.h>
#include <ATen/ops/aminmax.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/runtime/custom_operator.h>

#include <functional>
#include <numeric>

#include "graph/draws/dropout_seeds.h"

namespace dslaunch::graph {

using torch::autograd::AutogradContext;
using torch::autograd::Variable;
using torch::autograd::variable_list;
using torch::jit::pop;
using torch::jit::Stack;

namespace {

// The rate at which a static range follows the batches, as in DeepSpeed's QuantAct. The new range
// is `kRangeMomentum * old range + (1 - kRangeMomentum) * batch's range`.
constexpr double kRangeMomentum = 0.95;

// An autograd function that changes values by CHANGE and passes their gradient on unchanged.
struct StraightThrough : torch::autograd::Function<StraightThrough> {
    using Change = std::function<at::Tensor(const at::Tensor&)>;

    static Variable forward(AutogradContext* /*context*/, const Variable& values,
                            const Change& change) {
        return change(values);
    }

    static variable_list backward(AutogradContext* /*context*/, variable_list gradients) {
        return {gradients.front(), {}};
    }
};

// Returns one sum for each bit of the mask: the sum of PRODUCTS over the elements that have this
// bit. PRODUCTS has the shape of the weight.
at::Tensor summed(const at::Tensor& products, const WeightMask& mask, int64_t numel) {
    const at::Tensor turned = mask.is_transposed ? products.t() : products;
    if (mask.sort == MaskSort::kElements) return turned;
    if (mask.sort == MaskSort::kHeads) return turned.sum(0).reshape({numel, -1}).sum(1);
    std::vector<int64_t> others(static_cast<size_t>(turned.dim() - 1));
    std::iota(others.begin(), others.end(), 1);
    return others.empty() ? turned : turned.sum(others);
}

struct Masked : torch::autograd::Function<Masked> {
    static Variable forward(AutogradContext* context, const Variable& values,
                            const Variable& source, const WeightMask& mask) {
        const at::Tensor bits = mask.mask(source);
        const bool learns = mask.is_learned && source.requires_grad();
        context->save_for_backward({bits, learns ? values : at::Tensor(), source});
        context->saved_data["sort"] = static_cast<int64_t>(mask.sort);
        context->saved_data["transposed"] = mask.is_transposed;
        context->saved_data["learns"] = learns;
        return values * mask.spread(bits, values);
    }

    static variable_list backward(AutogradContext* context, variable_list gradients) {
        const variable_list saved = context->get_saved_variables();
        WeightMask mask;
        mask.sort = static_cast<MaskSort>(context->saved_data["sort"].toInt());
        mask.is_transposed = context->saved_data["transposed"].toBool();
        const at::Tensor& gradient = gradients.front();
        at::Tensor to_source;
        if (context->saved_data["learns"].toBool())
            to_source = summed(gradient.to(at::kFloat) * saved[1], mask, saved[2].numel())
                            .reshape(saved[2].sizes())
                            .to(saved[2].scalar_type());
        return {gradient * mask.spread(saved[0], gradient), to_source, {}};
    }
};

int64_t pop_int(Stack& stack) {
    return pop(stack).toInt();
}

void round_weight(Stack& stack) {
    const DrawKey& key = this_draw_key();
    WeightRounding rounding;
    const int64_t salt = pop_int(stack);
    rounding.schedule.change_ratio = pop(stack).toDouble();
    rounding.schedule.offset = pop_int(stack);
    rounding.schedule.period = pop_int(stack);
    rounding.schedule.target = pop_int(stack);
    rounding.schedule.start = pop_int(stack);
    rounding.schedule.is_fixed = pop(stack).toBool();
    rounding.is_transposed = pop(stack).toBool();
    rounding.grid.is_stochastic = pop(stack).toBool();
    rounding.grid.is_symmetric = pop(stack).toBool();
    rounding.grid.groups = pop_int(stack);
    const at::Tensor weight = pop(stack).toTensor();
    if (bits_after(rounding.schedule, key.updates).bits == 0) {
        stack.emplace_back(weight);
        return;
    }
    const uint64_t seed = rounding_seed(key.seed, key.updates, salt);
    stack.emplace_back(StraightThrough::apply(
        weight, [&](const at::Tensor& values) { return rounding.of(values, key.updates, seed); }));
}

void mask_weight(Stack& stack) {
    WeightMask mask;
    mask.is_transposed = pop(stack).toBool();
    mask.offset = pop_int(stack);
    mask.ratio = pop(stack).toDouble();
    mask.is_learned = pop(stack).toBool();
    mask.sort = static_cast<MaskSort>(pop_int(stack));
    const at::Tensor source = pop(stack).toTensor();
    const at::Tensor values = pop(stack).toTensor();
    stack.emplace_back(mask.is_on(this_draw_key().updates) ? Masked::apply(values, source, mask)
                                                           : values);
}

bool is_on(int64_t offset) {
    const int64_t updates = this_draw_key().updates;
    return updates < 0 || updates >= offset;
}

void round_activation(Stack& stack) {
    const int64_t offset = pop_int(stack);
    const bool by_sample = pop(stack).toBool();
    const bool symmetric = pop(stack).toBool();
    const int64_t bits = pop_int(stack);
    const at::Tensor values = pop(stack).toTensor();
    if (!is_on(offset) || values.numel() == 0) {
        stack.emplace_back(values);
        return;
    }
    stack.emplace_back(StraightThrough::apply(values, [&](const at::Tensor& from) {
        const int64_t groups = by_sample ? from.size(0) : from.numel() / from.size(-1);
        return on_grid(from, {bits, groups, symmetric});
    }));
}

// Moves RANGE towards the range of VALUES if all of VALUES are finite. A range that is not finite
// would never become finite again.
void move_range(const at::Tensor& range, const at::Tensor& values) {
    const auto [least, most] = at::aminmax(values.to(at::kFloat));
    const at::Tensor batch = at::stack({least, most});
    const at::Tensor before = at::where(range[0] == range[1], batch, range);
    const at::Tensor moved = before * kRangeMomentum + batch * (1 - kRangeMomentum);
    range.copy_(at::where(batch.isfinite().all(), moved, range));
}

void round_activation_in_range(Stack& stack) {
    const int64_t offset = pop_int(stack);
    const bool moves = pop(stack).toBool();
    const bool symmetric = pop(stack).toBool();
    const int64_t bits = pop_int(stack);
    const at::Tensor range = pop(stack).toTensor();
    const at::Tensor values = pop(stack).toTensor();
    if (!is_on(offset) || values.numel() == 0) {
        stack.emplace_back(values);
        return;
    }
    stack.emplace_back(StraightThrough::apply(values, [&](const at::Tensor& from) {
        if (moves) move_range(range, from);
        const at::Tensor rounded = on_grid_of_range(from, range, bits, symmetric);
        return at::where(range[0] == range[1], from, rounded);
    }));
}

}  // namespace

uint64_t rounding_seed(uint64_t seed, int64_t updates, int64_t salt) {
    return draw_seed({seed, updates, 0}, salt, 0);
}

void register_compression_operators() {
    using torch::jit::Operator;
    constexpr auto kFromSchema = c10::AliasAnalysisKind::FROM_SCHEMA;
    static const torch::jit::RegisterOperators operators({
        Operator("dslaunch::round_weight(Tensor weight, int groups, bool symmetric, bool "
                 "stochastic, bool transposed, bool fixed, int start_bits, int target_bits, int "
                 "period, int offset, float change_ratio, int salt) -> Tensor",
                 round_weight, kFromSchema),
        Operator("dslaunch::mask_weight(Tensor values, Tensor source, int sort, bool learned, "
                 "float ratio, int offset, bool transposed) -> Tensor",
                 mask_weight, kFromSchema),
        Operator("dslaunch::round_activation(Tensor values, int bits, bool symmetric, bool "
                 "by_sample, int offset) -> Tensor",
                 round_activation, kFromSchema),
        Operator("dslaunch::round_activation_in_range(Tensor values, Tensor(a!) range, int bits, "
                 "bool symmetric, bool moves, int offset) -> Tensor",
                 round_activation_in_range, kFromSchema),
    });
}

Value* insert_rounding(Graph& graph, Value* weight, const WeightRounding& rounding, int64_t salt) {
    const config::BitSchedule& schedule = rounding.schedule;
    // Without random rounding, SALT has no effect. It is replaced by 0, so that equal layers have
    // equal code.
    return graph.insert(Symbol::fromQualString("dslaunch::round_weight"),
                        {weight, rounding.grid.groups, rounding.grid.is_symmetric,
                         rounding.grid.is_stochastic, rounding.is_transposed, schedule.is_fixed,
                         schedule.start, schedule.target, schedule.period, schedule.offset,
                         schedule.change_ratio, rounding.grid.is_stochastic ? salt : int64_t{0}});
}

Value* insert_mask(Graph& graph, Value* values, Value* source, const WeightMask& mask) {
    return graph.insert(Symbol::fromQualString("dslaunch::mask_weight"),
                        {values, source, static_cast<int64_t>(mask.sort), mask.is_learned,
                         mask.ratio, mask.offset, mask.is_transposed});
}

Value* insert_rounding(Graph& graph, Value* values, const ActivationRounding& rounding) {
    return graph.insert(
        Symbol::fromQualString("dslaunch::round_activation"),
        {values, rounding.bits, rounding.is_symmetric, rounding.is_by_sample, rounding.offset});
}

Value* insert_rounding(Graph& graph, Value* values, Value* range,
                       const ActivationRounding& rounding) {
    return graph.insert(Symbol::fromQualString("dslaunch::round_activation_in_range"),
                        {values, range, rounding.bits, rounding.is_symmetric, rounding.moves_range,
                         rounding.offset});
}

}  // namespace dslaunch::graph
