#include "graph/adapter/packed_base.h"

#include <ATen/core/stack.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/matmul.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/jit/runtime/custom_operator.h>

#include <cstddef>
#include <memory>
#include <vector>

#include "base/check.h"
#include "base/error.h"
#include "graph/adapter/linear_layers.h"
#include "graph/nodes/graph_nodes.h"
#include "graph/packed/packed_weight.h"
#include "plan/model/model_info.h"

namespace dslaunch::graph {

using torch::autograd::AutogradContext;
using torch::autograd::Variable;
using torch::autograd::variable_list;
using torch::jit::Stack;

namespace {

const char* const kPackedLinear = "dslaunch::packed_linear";

// Returns the unpacked weight. On the CPU, all small weights of a thread use the same buffer, so a
// small weight is valid only until the next call in this thread. With separate buffers, freed
// weights would leave holes between saved activations, and the holes would be too small for other
// tensors. A large weight gets separate memory, which runtime/memory counts. On a GPU, every weight
// gets separate memory, because the allocator keeps small blocks apart.
at::Tensor unpacked(const at::Tensor& packed, const kernels::MatrixShape& shape) {
    constexpr auto kSmall = static_cast<size_t>(plan::kLargeBlock.value);
    thread_local std::vector<std::byte> shared;
    const auto bytes = static_cast<size_t>(shape.out * shape.in) * packed.element_size();
    const bool shares = packed.is_cpu() && bytes < kSmall;
    if (shares && shared.size() < bytes) shared.resize(bytes);
    const at::Tensor dense =
        shares ? at::from_blob(shared.data(), {shape.out, shape.in}, packed.options())
               : at::empty({shape.out, shape.in}, packed.options());
    unpack(packed, shape, dense);
    return dense;
}

// The product x W^T + bias for a packed weight W. The unpacked weight is freed after the product:
// backward unpacks it again.
struct PackedLinear : torch::autograd::Function<PackedLinear> {
    static Variable forward(AutogradContext* context, const Variable& x, const Variable& packed,
                            const std::optional<Variable>& bias,
                            const kernels::MatrixShape& shape) {
        context->save_for_backward({packed});
        context->saved_data["form"] = static_cast<int64_t>(shape.form);
        context->saved_data["sizes"] = std::vector<int64_t>{shape.out, shape.in};
        context->saved_data["dtypes"] =
            std::vector<int64_t>{static_cast<int64_t>(x.scalar_type()),
                                 static_cast<int64_t>(bias ? bias->scalar_type() : at::kFloat)};
        context->saved_data["has_bias"] = bias.has_value();
        return at::linear(x, unpacked(packed, shape), bias);
    }

    static variable_list backward(AutogradContext* context, variable_list gradients) {
        const at::Tensor packed = context->get_saved_variables().front();
        const auto form = static_cast<kernels::MatrixForm>(context->saved_data["form"].toInt());
        const std::vector<int64_t> sizes = context->saved_data["sizes"].toIntVector();
        const std::vector<int64_t> dtypes = context->saved_data["dtypes"].toIntVector();
        const at::Tensor& gradient = gradients.front();
        at::Tensor to_x, to_bias;
        if (context->needs_input_grad(0)) {
            const at::Tensor weight =
                unpacked(packed, kernels::matrix_shape(form, sizes[0], sizes[1]));
            to_x = at::matmul(gradient.to(weight.scalar_type()), weight)
                       .to(static_cast<at::ScalarType>(dtypes[0]));
        }
        if (context->saved_data["has_bias"].toBool() && context->needs_input_grad(2))
            to_bias = gradient.reshape({-1, gradient.size(-1)})
                          .sum(0)
                          .to(static_cast<at::ScalarType>(dtypes[1]));
        return {to_x, {}, to_bias, {}};
    }
};

void packed_linear(Stack& stack) {
    const auto bias = torch::jit::pop(stack).toOptional<at::Tensor>();
    const int64_t in = torch::jit::pop(stack).toInt(), out = torch::jit::pop(stack).toInt();
    const auto form = static_cast<kernels::MatrixForm>(torch::jit::pop(stack).toInt());
    const at::Tensor packed = torch::jit::pop(stack).toTensor();
    const at::Tensor x = torch::jit::pop(stack).toTensor();
    stack.emplace_back(PackedLinear::apply(x, packed, bias, kernels::matrix_shape(form, out, in)));
}

void register_packed_linear() {
    static const torch::jit::RegisterOperators operators({torch::jit::Operator(
        "dslaunch::packed_linear(Tensor x, Tensor packed, int form, int outputs, int inputs, "
        "Tensor? bias) -> Tensor",
        packed_linear, c10::AliasAnalysisKind::FROM_SCHEMA)});
}

kernels::MatrixForm form_of(config::LoraBase base) {
    DSL_CHECK(base != config::LoraBase::kAsIs, "a base that is not quantized has no packed form");
    if (base == config::LoraBase::kInt8) return kernels::MatrixForm::kInt8;
    return base == config::LoraBase::kInt4 ? kernels::MatrixForm::kInt4 : kernels::MatrixForm::kNf4;
}

// Returns the bias of the product NODE; null if there is no bias. Returns nothing if NODE adds
// something that is not a plain bias.
std::optional<Value*> bias_of(const Node& node) {
    if (node.kind() == aten::linear) return node.input(2);
    if (node.kind() != aten::addmm) return nullptr;
    return constant_number(node, "beta") == 1 ? std::optional(node.input(0)) : std::nullopt;
}

bool can_pack(const Model& model, const LinearLayer& layer) {
    const ModelParameter& parameter = model.parameters()[layer.parameter];
    if (parameter.packed) return true;
    if (parameter.tensor.requires_grad() || !parameter.tensor.is_floating_point()) return false;
    return !layer.is_read_elsewhere && std::ranges::all_of(layer.uses, [&](const LinearUse& use) {
        return use.is_transposed == layer.is_transposed && bias_of(*use.node).has_value();
    });
}

// Removes the nodes that make VALUE if no other node reads their outputs.
void drop_unread(Value* value) {
    while (value->uses().empty() && value->node()->kind() != prim::Param) {
        Node* const node = value->node();
        value = node->input(0);
        node->destroy();
    }
}

void replace(LoweredGraph& lowered, const LinearUse& use, Value* packed,
             const kernels::MatrixShape& shape) {
    Node& node = *use.node;
    Graph& graph = *lowered.graph;
    const WithInsertPoint before(&node);
    Value* bias = *bias_of(node);
    if (bias == nullptr) bias = graph.insertConstant(IValue());
    Node* const product = graph.create(
        Symbol::fromQualString(kPackedLinear),
        {node.input(use.input), packed, graph.insertConstant(static_cast<int64_t>(shape.form)),
         graph.insertConstant(shape.out), graph.insertConstant(shape.in), bias});
    graph.insertNode(product);
    product->copyMetadata(&node);
    product->output()->setType(node.output()->type());
    node.output()->replaceAllUsesWith(product->output());
    Value* const weight = node.input(use.weight);
    node.destroy();
    drop_unread(weight);
}

}  // namespace

void pack_base(Model& model, LoweredGraph& lowered, config::LoraBase base) {
    if (lowered.takes_module)
        fail(ExitCode::kInput,
             "dslaunch.lora.base: {} takes a whole module as an argument, so the weights of the "
             "module cannot be quantized; call a method of a concrete module class instead, or "
             "remove dslaunch.lora.base",
             lowered.opaque_node);
    register_packed_linear();
    std::vector<LinearLayer> layers = find_linear_layers(model, lowered);
    if (layers.size() > 1) layers.pop_back();
    std::erase_if(layers, [&](const LinearLayer& layer) { return !can_pack(model, layer); });
    if (layers.empty())
        fail(ExitCode::kInput,
             "dslaunch.lora.base: forward has no frozen linear layer except its last one, so there "
             "is nothing to quantize; remove dslaunch.lora.base");
    for (const LinearLayer& layer : layers) {
        const ModelParameter& parameter = model.parameters()[layer.parameter];
        if (!parameter.packed)
            model.pack_parameter(
                layer.parameter,
                std::make_shared<PackedWeight>(parameter.tensor.detach(), layer.is_transposed,
                                               form_of(base), lowered.parameter_dtype));
        for (const LinearUse& use : layer.uses)
            replace(lowered, use, layer.weight, parameter.packed->shape());
    }
}

}  // namespace dslaunch::graph
