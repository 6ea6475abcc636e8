#include "graph/lower/device_rewrite.h"

#include <ATen/core/grad_mode.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/ir/constants.h>

#include <algorithm>
#include <optional>
#include <set>

#include "graph/lowered/lowered_graph.h"
#include "graph/nodes/graph_nodes.h"
#include "graph/nodes/tensor_values.h"

namespace dslaunch::graph {

namespace {

bool is_elsewhere(const at::Tensor& tensor, c10::Device device) {
    return tensor.defined() && tensor.device() != device;
}

// Returns VALUE on DEVICE; nothing if it is there already or has no device.
std::optional<IValue> moved_constant(const IValue& value, c10::Device device) {
    if (value.isDevice()) {
        if (value.toDevice() == device) return std::nullopt;
        return device;
    }
    bool elsewhere = false;
    for_each_tensor(value, [&](const at::Tensor& tensor) {
        elsewhere = elsewhere || is_elsewhere(tensor, device);
    });
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
        const WithInsertPoint here(&node);
        node.output()->replaceAllUsesWith(node.owningGraph()->insertConstant(*moved));
        node.destroy();
    });
}

void rewrite_methods(const Module& module, c10::Device device) {
    std::set<const Function*> seen;
    for (const Module& part : module.modules())
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
    for_each_tensor_of_object(model.module()._ivalue(), [&](const at::Tensor& tensor) {
        if (!is_elsewhere(tensor, device) || model.parameter_index(tensor) >= 0 ||
            model.view_of(tensor) != nullptr)
            return;
        tensor.set_data(tensor.to(device));
    });
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
    return lowered.takes_module || has_blocks(*lowered.graph->block());
}

}  // namespace dslaunch::graph
