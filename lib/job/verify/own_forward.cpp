#include "job/verify/own_forward.h"

#include <ATen/core/Reduction.h>
#include <ATen/core/grad_mode.h>
#include <ATen/core/jit_type.h>
#include <ATen/ops/binary_cross_entropy_with_logits.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/l1_loss.h>
#include <ATen/ops/mse_loss.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/runtime/graph_executor.h>

#include <algorithm>
#include <string>

#include "base/error.h"
#include "graph/memory/shared_storage.h"

namespace dslaunch::job {

namespace {

using c10::IValue;

// Returns forward's arguments in the order of its schema. The batch gives them by name. A dict
// takes all names that the schema does not have, and defaults fill the rest.
std::vector<IValue> stack_of(const c10::FunctionSchema& schema,
                             const std::vector<std::string>& names,
                             const std::vector<IValue>& batch) {
    std::vector<IValue> stack;
    for (size_t i = 1; i < schema.arguments().size(); ++i) {  // 0 is the module
        const c10::Argument& argument = schema.arguments()[i];
        const auto found = std::ranges::find(names, argument.name());
        if (found != names.end()) {
            stack.push_back(batch[static_cast<size_t>(found - names.begin())]);
        } else if (argument.type()->kind() == c10::TypeKind::DictType) {
            c10::Dict<std::string, at::Tensor> dict;
            for (size_t n = 0; n < names.size(); ++n)
                if (!schema.argumentIndexWithName(names[n]) && batch[n].isTensor())
                    dict.insert(names[n], batch[n].toTensor());
            stack.emplace_back(dict);
        } else if (argument.default_value()) {
            stack.push_back(*argument.default_value());
        } else {
            fail(ExitCode::kInput, "forward's argument {} has no value", argument.name());
        }
    }
    return stack;
}

// Returns the tensor of OUTPUT named WANTED, or its first or only one.
at::Tensor chosen_of(const IValue& output, const std::string& wanted) {
    if (output.isTensor()) return output.toTensor();
    if (output.isTuple()) {
        const auto type = output.type()->expect<c10::TupleType>();
        const auto& elements = output.toTupleRef().elements();
        for (size_t i = 0; type->schema() != nullptr && i < elements.size(); ++i)
            if (type->schema()->arguments()[i].name() == wanted) return elements[i].toTensor();
        return elements.at(0).toTensor();
    }
    if (!output.isGenericDict()) fail(ExitCode::kInput, "forward returns {}", output.tagKind());
    const auto dict = output.toGenericDict();
    if (dict.size() == 1) return dict.begin()->value().toTensor();
    return dict.at(IValue(wanted)).toTensor();
}

}  // namespace

at::Tensor own_loss(graph::Model& model, const graph::LoweredGraph& lowered,
                    const config::LossConfig& loss, const std::vector<IValue>& batch) {
    // The interpreter takes node after node: no fusion, no derivative of LibTorch's compiler.
    const torch::jit::GraphOptimizerEnabledGuard plain(false);
    const torch::jit::Method forward = model.module().get_method("forward");
    std::vector<std::string> names = lowered.arguments;
    const bool is_own = loss.kind == config::LossKind::kModel;
    if (!is_own) names.pop_back();
    const IValue output = forward(stack_of(forward.function().getSchema(), names, batch));
    const at::Tensor value = chosen_of(output, is_own ? "loss" : "logits");
    const at::Tensor target = is_own ? at::Tensor() : batch[names.size()].toTensor();
    const int64_t mean =
        loss.mean == config::LossMean::kToken ? at::Reduction::Sum : at::Reduction::Mean;
    const auto floats = [&] { return target.to(value.scalar_type()); };
    switch (loss.kind) {
        case config::LossKind::kCrossEntropy:
            return at::cross_entropy_loss(value.flatten(0, -2), target.flatten(), {}, mean);
        case config::LossKind::kMse:
            return at::mse_loss(value, floats(), mean);
        case config::LossKind::kL1:
            return at::l1_loss(value, floats(), mean);
        case config::LossKind::kBceWithLogits:
            return at::binary_cross_entropy_with_logits(value, floats(), {}, {}, mean);
        default:
            return value;
    }
}

void widen(graph::Model& model) {
    const at::NoGradGuard no_grad;
    std::vector<at::Tensor> tensors;
    for (const graph::ModelParameter& parameter : model.parameters())
        tensors.push_back(parameter.tensor);
    for (const graph::ModelBuffer& buffer : model.buffers()) tensors.push_back(buffer.tensor);
    const std::vector<at::Tensor> wide = graph::copied_together(tensors, at::kDouble);
    for (size_t i = 0; i < tensors.size(); ++i) tensors[i].set_data(wide[i]);
}

}  // namespace dslaunch::job
