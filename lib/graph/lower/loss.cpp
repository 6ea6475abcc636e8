#include "graph/lower/loss.h"

#include <ATen/core/Reduction.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/interned_strings.h>
#include <ATen/core/ivalue.h>
#include <c10/core/ScalarType.h>
#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/ir/ir.h>

#include "base/check.h"
#include "base/error.h"
#include "graph/lower/precision.h"

namespace dslaunch::graph {

using torch::jit::Graph;
using torch::jit::Node;
using torch::jit::Value;

namespace {

constexpr int64_t kIgnoreIndex = -100;  // PyTorch's default: such targets do not count

Value* loss_value(Graph& graph, const config::LossConfig& loss, Value* output, Value* target) {
    // A mean over all tokens of the global batch is a sum here; the step divides by their number.
    const auto reduction =
        loss.mean == config::LossMean::kToken ? at::Reduction::Sum : at::Reduction::Mean;
    Value* mean = graph.insertConstant(static_cast<int64_t>(reduction));
    switch (loss.kind) {
        case config::LossKind::kCrossEntropy: {
            // [.., classes] rows against [..] targets; a 2-d output has that shape already.
            Value* rows = graph.insert(c10::aten::flatten, {output, 0, -2});
            Value* labels = graph.insert(c10::aten::flatten, {target});
            Value* none = graph.insertConstant(c10::IValue());
            return graph.insert(c10::aten::cross_entropy_loss,
                                {rows, labels, none, mean, kIgnoreIndex, 0.0});
        }
        case config::LossKind::kMse:
            return graph.insert(c10::aten::mse_loss, {output, target, mean});
        case config::LossKind::kL1:
            return graph.insert(c10::aten::l1_loss, {output, target, mean});
        case config::LossKind::kBceWithLogits: {
            Value* none = graph.insertConstant(c10::IValue());
            return graph.insert(c10::aten::binary_cross_entropy_with_logits,
                                {output, target, none, none, mean});
        }
        case config::LossKind::kModel:
            break;
    }
    DSL_CHECK(false, "no such loss");
    return nullptr;
}

}  // namespace

int64_t counted_targets(const config::LossConfig& loss, const c10::IValue& target) {
    const at::Tensor& values = target.toTensor();
    if (loss.kind != config::LossKind::kCrossEntropy) return values.numel();
    return values.ne(kIgnoreIndex).sum().item<int64_t>();
}

void append_loss(const config::LossConfig& loss, LoweredGraph& lowered) {
    Graph& graph = *lowered.graph;
    Value* output = graph.outputs()[0];
    const bool is_tensor = output->type()->isSubtypeOf(*c10::TensorType::get());
    if (loss.kind == config::LossKind::kModel) {
        if (loss.mean == config::LossMean::kToken)
            fail(ExitCode::kConfig,
                 "dslaunch.loss.mean: \"token\" needs a loss that the config names "
                 "(dslaunch.loss.name): this model "
                 "computes its own mean");
        if (is_tensor) {
            if (lowered.compute_dtype != at::kFloat) {
                torch::jit::WithInsertPoint at_end(graph.return_node());
                graph.block()->replaceOutput(0, in_full_precision(output));
            }
            return;
        }
        fail(ExitCode::kInput,
             "forward returns {}, not a loss; return the loss alone, or name one in the config: "
             "\"dslaunch\": {{\"loss\": {{\"name\": \"cross_entropy\", \"target\": …}}}}",
             output->type()->repr_str());
    }
    if (!is_tensor)
        fail(ExitCode::kInput, "forward returns {}; the config's loss needs one tensor",
             output->type()->repr_str());
    Value* target = graph.insertInput(lowered.first_state());
    target->setType(c10::TensorType::get());
    lowered.arguments.push_back(loss.target);
    lowered.argument_types.push_back(c10::TensorType::get());
    torch::jit::WithInsertPoint at_end(graph.return_node());
    graph.block()->replaceOutput(0, loss_value(graph, loss, output, target));
}

}  // namespace dslaunch::graph
