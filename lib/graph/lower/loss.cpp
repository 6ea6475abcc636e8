#include "graph/lower/loss.h"

#include <ATen/core/Reduction.h>
#include <torch/csrc/jit/ir/constants.h>

#include <algorithm>
#include <vector>

#include "base/check.h"
#include "base/error.h"
#include "base/text.h"
#include "graph/lower/precision.h"
#include "graph/nodes/graph_nodes.h"

namespace dslaunch::graph {

namespace {

constexpr int64_t kIgnoreIndex = -100;  // PyTorch's default; such targets do not count

Value* loss_value(Graph& graph, const config::LossConfig& loss, Value* output, Value* target) {
    // For a mean over all tokens of the global batch, the graph computes a sum, and the step
    // divides it by the number of tokens.
    const auto reduction =
        loss.mean == config::LossMean::kToken ? at::Reduction::Sum : at::Reduction::Mean;
    Value* mean = graph.insertConstant(static_cast<int64_t>(reduction));
    switch (loss.kind) {
        case config::LossKind::kCrossEntropy: {
            // Flattens OUTPUT to rows, [rows, classes], and the targets to [rows]. An output with
            // two dimensions has this shape already.
            Value* rows = graph.insert(aten::flatten, {output, 0, -2});
            Value* labels = graph.insert(aten::flatten, {target});
            Value* none = graph.insertConstant(IValue());
            return graph.insert(aten::cross_entropy_loss,
                                {rows, labels, none, mean, kIgnoreIndex, 0.0});
        }
        case config::LossKind::kMse:
            return graph.insert(aten::mse_loss, {output, target, mean});
        case config::LossKind::kL1:
            return graph.insert(aten::l1_loss, {output, target, mean});
        case config::LossKind::kBceWithLogits: {
            Value* none = graph.insertConstant(IValue());
            return graph.insert(aten::binary_cross_entropy_with_logits,
                                {output, target, none, none, mean});
        }
        case config::LossKind::kModel:
        case config::LossKind::kDpo:
        case config::LossKind::kIpo:
        case config::LossKind::kSimPo:
        case config::LossKind::kOrpo:
            break;
    }
    DSL_CHECK(false, "no such loss");
    return nullptr;
}

// Computes -log sigmoid(FACTOR * MARGIN - AHEAD).
Value* lost_bet(Graph& graph, Value* margin, double factor, double ahead = 0.0) {
    Value* odds = graph.insert(aten::mul, {margin, factor});
    if (ahead != 0.0) odds = graph.insert(aten::sub, {odds, ahead});
    return graph.insert(aten::neg, {graph.insert(aten::log_sigmoid, {odds})});
}

// Returns the loss of each pair, [pairs]. MARGIN: the log-probability of the chosen answer minus
// the log-probability of the rejected answer, in nats. If the loss has a reference model, the
// reference model's log-probability is first subtracted from each of the two.
Value* loss_of_margin(Graph& graph, const config::LossConfig& loss, Value* margin) {
    if (loss.kind == config::LossKind::kSimPo)
        return lost_bet(graph, margin, loss.beta, loss.gamma);
    if (loss.kind == config::LossKind::kIpo) {
        Value* off = graph.insert(aten::sub, {margin, 0.5 / loss.beta});
        return graph.insert(aten::mul, {off, off});
    }
    Value* right = lost_bet(graph, margin, loss.beta);
    if (loss.label_smoothing == 0.0) return right;
    Value* wrong = lost_bet(graph, margin, -loss.beta);
    return graph.insert(aten::add, {graph.insert(aten::mul, {right, 1.0 - loss.label_smoothing}),
                                    graph.insert(aten::mul, {wrong, loss.label_smoothing})});
}

// Returns the log-odds of each answer. ANSWERS: the negative log-probability of each, in nats.
Value* log_odds(Graph& graph, Value* answers) {
    // The odds of a certain answer would be infinite.
    constexpr double kMostLikely = -1e-6;
    Value* logs = graph.insert(aten::clamp_max, {graph.insert(aten::neg, {answers}), kMostLikely});
    Value* of_others =
        graph.insert(aten::log, {graph.insert(aten::neg, {graph.insert(aten::expm1, {logs})})});
    return graph.insert(aten::sub, {logs, of_others});
}

// Returns the values of the chosen answers, [pairs]; with INDEX 1, of the rejected answers.
Value* side(Graph& graph, Value* answers, int64_t index = 0) {
    return graph.insert(aten::select, {answers, 1, index});
}

struct PreferenceOutputs {
    Value* loss;
    Value* rewards;  // [pairs, 2]
};

// Adds a preference loss. OUTPUT: [pairs * 2, length, classes]. TARGET: [pairs, 2, length].
// REFERENCE: [pairs, 2] or null. Needs as little memory as cross entropy: OUTPUT is the only large
// tensor, with tokens * classes elements.
PreferenceOutputs preference_loss(Graph& graph, const config::LossConfig& loss, Value* output,
                                  Value* target, Value* reference) {
    Value* rows = graph.insert(aten::flatten, {output, 0, -2});
    Value* labels = graph.insert(aten::flatten, {target});
    Value* none = graph.insertConstant(IValue());
    Value* each = graph.insertConstant(static_cast<int64_t>(at::Reduction::None));
    Value* of_tokens =
        graph.insert(aten::cross_entropy_loss, {rows, labels, none, each, kIgnoreIndex, 0.0});
    Value* last = graph.insertConstant(std::vector<int64_t>{-1});
    // The negative log-probability of each answer, in nats, relative to the reference if there is
    // one.
    Value* sums = graph.insert(aten::sum, {graph.insert(aten::view_as, {of_tokens, target}), last});
    if (reference != nullptr) sums = graph.insert(aten::add, {sums, reference});
    Value* answers = sums;
    Value* tokens = nullptr;
    if (loss.kind != config::LossKind::kDpo) {
        // The mean over the answer's tokens, as TRL uses it for ipo, simpo and orpo.
        Value* counted = graph.insert(aten::ne, {target, kIgnoreIndex});
        tokens = graph.insert(aten::clamp_min, {graph.insert(aten::sum, {counted, last}), 1});
        answers = graph.insert(aten::div, {sums, tokens});
    }
    Value* rewarded = reference != nullptr ? sums : answers;
    Value* rewards = graph.insert(aten::detach, {graph.insert(aten::mul, {rewarded, -loss.beta})});
    if (loss.kind != config::LossKind::kOrpo) {
        Value* margin = graph.insert(aten::sub, {side(graph, answers, 1), side(graph, answers)});
        return {graph.insert(aten::mean, {loss_of_margin(graph, loss, margin)}), rewards};
    }
    Value* odds = log_odds(graph, answers);
    Value* ahead = graph.insert(aten::sub, {side(graph, odds), side(graph, odds, 1)});
    Value* lost = graph.insert(aten::mean, {lost_bet(graph, ahead, 1.0)});
    // The chosen answers are learned by cross entropy, in which each token has the same weight.
    Value* learned = graph.insert(aten::div, {graph.insert(aten::sum, {side(graph, sums)}),
                                              graph.insert(aten::sum, {side(graph, tokens)})});
    Value* weighed = graph.insert(aten::mul, {lost, loss.beta});
    return {graph.insert(aten::add, {learned, weighed}), rewards};
}

// Reshapes every argument from [rows, 2, …] to [rows * 2, …] for all nodes that read it.
void flatten_pairs(LoweredGraph& lowered) {
    Graph& graph = *lowered.graph;
    WithInsertPoint at_start(*graph.nodes().begin());
    for (size_t i = lowered.first_argument(); i < lowered.first_state(); ++i) {
        Value* pairs = graph.inputs()[i];
        Value* rows = graph.insert(aten::flatten, {pairs, 0, 1});
        pairs->replaceAllUsesAfterNodeWith(rows->node(), rows);
    }
}

Value* add_argument(LoweredGraph& lowered, const std::string& name) {
    Value* value = lowered.graph->insertInput(lowered.first_state());
    value->setType(c10::TensorType::get());
    lowered.arguments.push_back(name);
    lowered.argument_types.push_back(c10::TensorType::get());
    return value;
}

}  // namespace

void append_loss(const config::LossConfig& loss, LoweredGraph& lowered) {
    Graph& graph = *lowered.graph;
    Value* output = graph.outputs()[0];
    if (loss.kind == config::LossKind::kModel) {
        if (is_tensor(*output)) {
            if (lowered.compute_dtype != at::kFloat) {
                WithInsertPoint at_end(graph.return_node());
                graph.block()->replaceOutput(0, in_full_precision(output));
            }
            return;
        }
        fail(ExitCode::kInput,
             "forward returns {}, not a loss; return the loss alone, or name one in the config: "
             "\"dslaunch\": {{\"loss\": {{\"name\": \"cross_entropy\", \"target\": …}}}}",
             output->type()->repr_str());
    }
    if (!is_tensor(*output))
        fail(ExitCode::kInput,
             "forward returns {}, but the loss in the config (dslaunch.loss.name) needs a single "
             "tensor",
             output->type()->repr_str());
    if (!loss.is_preference()) {
        Value* target = add_argument(lowered, loss.target);
        WithInsertPoint at_end(graph.return_node());
        graph.block()->replaceOutput(0, loss_value(graph, loss, output, target));
        return;
    }
    if (std::ranges::count(lowered.arguments, loss.target) > 0)
        fail(ExitCode::kInput,
             "forward itself takes `{}`, the target of the loss, but a preference loss needs a "
             "forward, or a method logits(tokens), that takes only tokens and returns logits "
             "[rows, length, classes]",
             printable(loss.target));
    flatten_pairs(lowered);
    Value* reference =
        loss.needs_reference() ? add_argument(lowered, config::kReferenceArgument) : nullptr;
    Value* target = add_argument(lowered, loss.target);
    WithInsertPoint at_end(graph.return_node());
    const PreferenceOutputs made = preference_loss(graph, loss, output, target, reference);
    graph.block()->replaceOutput(0, made.loss);
    graph.registerOutput(made.rewards);
    lowered.has_rewards = true;
}

}  // namespace dslaunch::graph
