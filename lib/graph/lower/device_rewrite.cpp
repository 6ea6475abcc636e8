#include "graph/lower/device_rewrite.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/core/ivalue.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/ir/ir.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <set>

#include "graph/lower/live_values.h"
#include "graph/lowered/lowered_graph.h"
#include "graph/nodes/graph_nodes.h"

namespace dslaunch::graph {

namespace prim = c10::prim;
using c10::IValue;
using torch::jit::Block;
using torch::jit::Node;

namespace {

// Calls USE with every tensor in VALUE, those in modules below it included, each object once.
class TensorWalk {
  public:
    explicit TensorWalk(std::function<void(const at::Tensor&)> use) : use_(std::move(use)) {}

    void visit(const IValue& value) {
        if (value.isTensor()) {
            const at::Tensor& tensor = value.toTensor();
            if (tensor.defined() && seen_.insert(tensor.unsafeGetTensorImpl()).second) use_(tensor);
        } else if (value.isObject()) {
            if (!seen_.insert(&value.toObjectRef()).second) return;
            for (const IValue& member : value.toObjectRef().slots()) visit(member);
        } else if (value.isTuple()) {
            for (const IValue& element : value.toTupleRef().elements()) visit(element);
        } else if (value.isList()) {
            for (const IValue& element : value.toListRef()) visit(element);
        } else if (value.isGenericDict()) {
            for (const auto& item : value.toGenericDict()) visit(item.value());
        }
    }

  private:
    std::function<void(const at::Tensor&)> use_;
    std::set<const void*> seen_;
};

bool is_elsewhere(const at::Tensor& tensor, c10::Device device) {
    return tensor.defined() && tensor.device() != device;
}

// VALUE on DEVICE, nothing where it is there already or has no device.
std::optional<IValue> moved_constant(const IValue& value, c10::Device device) {
    if (value.isDevice()) {
        if (value.toDevice() == device) return std::nullopt;
        return device;
    }
    bool elsewhere = false;
    TensorWalk([&](const at::Tensor& tensor) {
        elsewhere = elsewhere || is_elsewhere(tensor, device);
    }).visit(value);
    if (!elsewhere) return std::nullopt;
    return map_tensors(value, [&](const at::Tensor& tensor) {
        return is_elsewhere(tensor, device) ? tensor.to(device) : tensor;
    });
}

bool has_blocks(const Block& block) {
    return std::any_of(block.nodes().begin(), block.nodes().end(),
                       [](const Node* node) { return !node->blocks().empty(); });
}

}  // namespace

void rewrite_devices(Block& block, c10::Device device) {
    for_each_node(block, [&](Node& node) {
        if (node.kind() != prim::Constant) return;
        const auto value = torch::jit::toIValue(node.output());
        if (!value) return;
        const std::optional<IValue> moved = moved_constant(*value, device);
        if (!moved) return;
        const torch::jit::WithInsertPoint here(&node);
        node.output()->replaceAllUsesWith(node.owningGraph()->insertConstant(*moved));
        node.destroy();
    });
}

void rewrite_methods(const torch::jit::Module& module, c10::Device device) {
    std::set<const torch::jit::Function*> seen;
    for (const torch::jit::Module& part : module.modules())
        for (const torch::jit::Method& method : part.get_methods())
            if (seen.insert(&method.function()).second)
                rewrite_devices(*method.graph()->block(), device);
}

void move_to_device(Model& model, c10::Device device) {
    const at::NoGradGuard no_grad;
    move_state_to_device(model, device);
    for (const ModelParameter& parameter : model.parameters())
        if (is_elsewhere(parameter.tensor, device))
            parameter.tensor.set_data(parameter.tensor.to(device));
}

void move_state_to_device(Model& model, c10::Device device) {
    const at::NoGradGuard no_grad;
    TensorWalk([&](const at::Tensor& tensor) {
        if (!is_elsewhere(tensor, device) || model.parameter_index(tensor) >= 0 ||
            model.view_of(tensor) != nullptr)
            return;
        tensor.set_data(tensor.to(device));
    }).visit(model.module()._ivalue());
}

std::vector<IValue> on_device(std::vector<IValue> values, c10::Device device) {
    for (IValue& value : values) {
        value = map_tensors(value, [&](const at::Tensor& tensor) {
            if (!is_elsewhere(tensor, device)) return tensor;
            const bool pin = device.is_cuda() && tensor.device().is_cpu();
            return (pin ? tensor.pin_memory() : tensor).to(device, /*non_blocking=*/pin);
        });
    }
    return values;
}

bool has_control_flow(const LoweredGraph& lowered) {
    return lowered.module_input || has_blocks(*lowered.graph->block());
}

}  // namespace dslaunch::graph
