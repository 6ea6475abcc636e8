#include "graph/tensor/tensor_check.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/jit/ir/constants.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.h"
#include "base/error.h"
#include "graph/nodes/graph_nodes.h"
#include "graph/segment/compute_context.h"
#include "graph/sharing/share_of.h"

namespace dslaunch::graph {

namespace {

constexpr int64_t kCheckSite = -1;

bool is_sum(const Node& node) {
    return is_one_of(node,
                     {"aten::linear", "aten::addmm", "aten::matmul", "aten::mm", "aten::bmm",
                      "aten::scaled_dot_product_attention", "aten::layer_norm", "aten::softmax",
                      "aten::cross_entropy_loss", "aten::mean", "aten::sum"});
}

// Returns fp64 for fp32 and 16-bit types, complex fp64 for complex types, and TYPE for others.
at::ScalarType wide_type(at::ScalarType type) {
    if (at::isComplexType(type)) return at::kComplexDouble;
    const bool is_known = type == at::kFloat || type == at::kHalf || type == at::kBFloat16;
    return is_known ? at::kDouble : type;
}

// Replaces a constant tensor, such as one that constant folding made, by its copy in fp64.
void widen_constant(Node& node) {
    const auto value = torch::jit::toIValue(node.output());
    if (!value || !value->isTensor()) return;
    const at::Tensor tensor = value->toTensor();
    if (wide_type(tensor.scalar_type()) == tensor.scalar_type()) return;
    const WithInsertPoint here(&node);
    node.output()->replaceAllUsesWith(
        node.owningGraph()->insertConstant(tensor.to(wide_type(tensor.scalar_type()))));
}

void widen(Block& block) {
    for_each_node(block, [](Node& node) {
        if (node.kind() == prim::Constant) widen_constant(node);
        const auto index = argument_at(node, "dtype");
        const auto dtype = index ? torch::jit::toIValue(node.input(*index)) : std::nullopt;
        if (!dtype || !dtype->isInt()) return;
        const auto narrow = static_cast<at::ScalarType>(dtype->toInt());
        if (wide_type(narrow) == narrow) return;
        const WithInsertPoint here(&node);
        node.replaceInput(
            *index, node.owningGraph()->insertConstant(static_cast<int64_t>(wide_type(narrow))));
    });
}

at::Tensor widened(const at::Tensor& tensor) {
    return tensor.to(wide_type(tensor.scalar_type()), /*non_blocking=*/false, /*copy=*/true);
}

at::Tensor loss_in(const std::vector<IValue>& outputs) {
    DSL_CHECK(!outputs.empty() && outputs[0].isTensor(), "the graph returns no loss");
    return outputs[0].toTensor();
}

// Returns leaves with the values of TENSORS. A leaf requires a gradient if its tensor in LIKE does.
std::vector<at::Tensor> leaves_of(const std::vector<at::Tensor>& tensors,
                                  const std::vector<at::Tensor>& like) {
    std::vector<at::Tensor> leaves;
    for (size_t i = 0; i < tensors.size(); ++i)
        leaves.push_back(tensors[i].detach().set_requires_grad(like[i].requires_grad()));
    return leaves;
}

std::vector<at::Tensor> gradients_of(const std::vector<at::Tensor>& leaves) {
    std::vector<at::Tensor> gradients;
    for (const at::Tensor& leaf : leaves) gradients.push_back(leaf.grad());
    return gradients;
}

double largest(const at::Tensor& tensor) {
    if (!tensor.defined() || tensor.numel() == 0) return 0;
    const double value = tensor.detach().to(at::kDouble).abs().max().item<double>();
    return std::isfinite(value) ? value : std::numeric_limits<double>::infinity();
}

// The values of a run and, after the backward, their gradients.
struct Trace {
    std::vector<at::Tensor> values;
    std::vector<at::Tensor> gradients;
};

Trace trace(const TensorCheckParts& parts, const WholeGraph::ValueList& values,
            TensorGroup* group) {
    Trace seen{std::vector<at::Tensor>(values.size()), std::vector<at::Tensor>(values.size())};
    const WholeGraph::See see = [&](size_t index, const IValue& value) {
        if (!value.isTensor() || !value.toTensor().defined()) return;
        const at::Tensor& tensor = value.toTensor();
        seen.values[index] = tensor.detach().clone();
        if (tensor.requires_grad())
            tensor.register_hook([&seen, index](const at::Tensor& gradient) {
                seen.gradients[index] = gradient.detach().clone();
            });
    };
    GraphInputs inputs = parts.inputs;
    const LoweredGraph& lowered = group == nullptr ? parts.lowered : parts.tensor.lowered;
    if (group != nullptr)
        inputs.parameters =
            tensor_shares(inputs.parameters, parts.tensor.plan, {group->rank(), group->size()});
    inputs.parameters = leaves_of(inputs.parameters, parts.inputs.parameters);
    const auto outputs = WholeGraph(parts.model, lowered, values).run(inputs, {true, group}, see);
    torch::autograd::backward({loss_in(outputs)}, {});
    return seen;
}

// Returns the largest difference between MINE and this rank's part of WHOLE.
double difference(const at::Tensor& whole, at::Tensor mine, const TensorPlacement& placement,
                  TensorGroup& group) {
    const bool shard = placement.is_shard();
    const at::Tensor expected =
        shard ? share_of(whole, placement.shard, {group.rank(), group.size()}) : whole;
    if (!mine.defined()) mine = at::zeros_like(expected);
    if (mine.sizes() != expected.sizes()) return std::numeric_limits<double>::infinity();
    return largest(expected.to(at::kDouble) - mine.to(at::kDouble));
}

// Returns a text that names the first node whose value differs from the original. If all values
// agree, the text names the last node whose gradient differs.
std::string first_difference(const TensorCheckParts& parts, TensorGroup& group, double scale) {
    const WholeGraph::ValueList originals = WholeGraph::values_of(parts.lowered);
    WholeGraph::ValueList twins;
    for (const Value* original : originals) twins.push_back(parts.tensor.twins.values.at(original));
    const Trace whole = trace(parts, originals, nullptr);
    const Trace mine = trace(parts, twins, &group);
    const auto placement = [&](size_t i) {
        const auto found = parts.tensor.placements.find(originals[i]);
        return found == parts.tensor.placements.end() ? TensorPlacement{} : found->second;
    };
    const double bound = parts.reference.bound;
    at::Tensor values = at::zeros({static_cast<int64_t>(originals.size())}, at::kDouble);
    at::Tensor gradients = values.clone();
    for (size_t i = 0; i < originals.size(); ++i) {
        const auto entry = static_cast<int64_t>(i);
        if (whole.values[i].defined())
            values[entry] = difference(whole.values[i], mine.values[i], placement(i), group) /
                            std::max(1.0, largest(whole.values[i]));
        if (!whole.gradients[i].defined()) continue;
        at::Tensor gradient = mine.gradients[i];
        if (placement(i).kind == TensorPlacement::Kind::kCopied)
            gradient = group.sum(gradient.defined() ? gradient : at::zeros_like(whole.gradients[i]),
                                 kCheckSite);
        gradients[entry] = difference(whole.gradients[i], gradient, placement(i), group) / scale;
    }
    values = group.max(values, kCheckSite);
    gradients = group.max(gradients, kCheckSite);
    for (size_t i = 0; i < originals.size(); ++i)
        if (values[static_cast<int64_t>(i)].item<double>() > bound)
            return "the first value that differs is computed by " +
                   describe_node(*originals[i]->node());
    for (size_t i = originals.size(); i-- > 0;)
        if (gradients[static_cast<int64_t>(i)].item<double>() > bound)
            return "the first gradient that differs belongs to the result of " +
                   describe_node(*originals[i]->node());
    return "only gradients of parameters differ";
}

}  // namespace

LoweredGraph in_double(const LoweredGraph& lowered) {
    DSL_CHECK(lowered.compute_dtype == at::kFloat, "only a graph for fp32 can be widened to fp64");
    LoweredGraph wide = lowered;
    wide.graph = lowered.graph->copy();
    widen(*wide.graph->block());
    return wide;
}

GraphInputs inputs_in_double(const Model& model, const std::vector<IValue>& arguments) {
    const at::NoGradGuard no_grad;
    GraphInputs inputs;
    for (const ModelParameter& parameter : model.parameters()) {
        at::Tensor wide = widened(parameter.tensor.detach());
        if (wide.is_floating_point() && wide.numel() > 0 && wide.min().equal(wide.max()))
            wide.add_(at::arange(wide.numel(), wide.options()).sin_().mul_(0.1).view(wide.sizes()));
        inputs.parameters.push_back(wide.set_requires_grad(parameter.tensor.requires_grad()));
    }
    for (const ModelBuffer& buffer : model.buffers())
        inputs.buffers.push_back(widened(buffer.tensor));
    for (const IValue& argument : arguments)
        inputs.arguments.push_back(
            map_tensors(argument, [](const at::Tensor& t) { return widened(t); }));
    return inputs;
}

TensorReference run_reference(const Model& model, const LoweredGraph& lowered,
                              const GraphInputs& inputs) {
    GraphInputs own = inputs;
    own.parameters = leaves_of(inputs.parameters, inputs.parameters);
    // The rounding error of a result is, to first order, bounded by the number of elements that are
    // added up to compute it.
    double summands = 0;
    const GraphFacts facts = observe(model, lowered, inputs);
    for (const Node* node : lowered.graph->nodes()) {
        const auto found = facts.tensors.find(is_sum(*node) ? node->input(0) : nullptr);
        if (found == facts.tensors.end() || found->second.empty()) continue;
        int64_t most = 1, rows = 1;
        for (const int64_t size : found->second.front().sizes) {
            most = std::max(most, size);
            rows *= size;
        }
        const int64_t last = std::max<int64_t>(1, found->second.front().sizes.back());
        // `2 * most`: a sum in forward and a sum in backward. `rows / last`: the gradient of a
        // weight is a sum over all rows.
        const int64_t products = 2 * most + rows / last;
        summands += static_cast<double>(products);
    }
    const auto outputs = WholeGraph(model, lowered, {}).run(own, {true, nullptr});
    TensorReference reference;
    reference.loss = loss_in(outputs);
    if (reference.loss.numel() != 1 || !reference.loss.requires_grad())
        fail(ExitCode::kInput, "the model returns no loss that depends on a trainable parameter");
    torch::autograd::backward({reference.loss}, {});
    reference.loss = reference.loss.detach();
    reference.gradients = gradients_of(own.parameters);
    reference.bound = std::max(1.0, summands) * std::numeric_limits<double>::epsilon();
    return reference;
}

TensorCheck check_tensor_model(const TensorCheckParts& parts, TensorGroup& group) {
    const plan::TensorPlan& plan = parts.tensor.plan;
    GraphInputs inputs = parts.inputs;
    inputs.parameters = tensor_shares(inputs.parameters, plan, {group.rank(), group.size()});
    inputs.parameters = leaves_of(inputs.parameters, parts.inputs.parameters);
    const auto outputs =
        WholeGraph(parts.model, parts.tensor.lowered, {}).run(inputs, {true, &group});
    const at::Tensor loss = loss_in(outputs);
    torch::autograd::backward({loss}, {});

    double scale = std::numeric_limits<double>::min();
    for (const at::Tensor& gradient : parts.reference.gradients)
        scale = std::max(scale, largest(gradient));
    const auto count = static_cast<int64_t>(plan.parameters.size());
    at::Tensor differences = at::zeros({count + 1}, at::kDouble);
    differences[count] =
        largest(parts.reference.loss - loss) / std::max(1.0, largest(parts.reference.loss));
    for (int64_t p = 0; p < count; ++p) {
        const auto index = static_cast<size_t>(p);
        const at::Tensor& whole = parts.reference.gradients[index];
        const plan::TensorParameter& parameter = plan.parameters[index];
        if (!whole.defined()) continue;
        at::Tensor mine = inputs.parameters[index].grad();
        if (parameter.gradient == plan::TensorGradient::kSummand)
            mine = group.sum(mine.defined() ? mine : at::zeros_like(whole), kCheckSite);
        TensorPlacement placement;
        if (parameter.rule != plan::TensorRule::kReplicated)
            placement = {TensorPlacement::Kind::kShard, parameter.shard, -1};
        differences[p] = difference(whole, mine, placement, group) / scale;
    }
    differences = group.max(differences, kCheckSite);
    const auto worst = differences.argmax().item<int64_t>();
    TensorCheck check;
    check.loss = loss.item<double>();
    check.difference = differences[worst].item<double>();
    check.where = worst == count ? "the loss" : plan.parameters[worst].name;
    check.bound = parts.reference.bound;
    if (!(check.difference <= check.bound))
        fail(ExitCode::kDiverged,
             "the tensor parallel graph does not compute the same as the model: {} differs by "
             "{:.3g}, but rounding explains only {:.3g}; {}",
             worst == count ? check.where : "the gradient of " + check.where, check.difference,
             check.bound, first_difference(parts, group, scale));
    return check;
}

}  // namespace dslaunch::graph
