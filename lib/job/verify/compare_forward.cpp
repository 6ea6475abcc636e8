// The part of WholeReference that compares the graph with the model's own forward.
#include <ATen/TensorOperators.h>
#include <ATen/core/Reduction.h>
#include <ATen/core/grad_mode.h>
#include <ATen/core/jit_type.h>
#include <ATen/ops/binary_cross_entropy_with_logits.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/full.h>
#include <ATen/ops/l1_loss.h>
#include <ATen/ops/mse_loss.h>
#include <ATen/ops/zeros.h>
#include <fmt/core.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/runtime/graph_executor.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "base/error.h"
#include "base/text.h"
#include "graph/draws/dropout_seeds.h"
#include "graph/nodes/graph_nodes.h"
#include "graph/segment/compute_context.h"
#include "graph/segment/segmented_model.h"
#include "graph/tensor/tensor_check.h"
#include "job/verify/whole_reference.h"

namespace dslaunch::job {

namespace {

using c10::IValue;

// Returns the arguments of forward in the order of its schema. The batch gives them by name. A dict
// argument gets all names that are not in the schema; defaults fill in the rest.
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

// Returns the tensor in OUTPUT with the name WANTED. If no tensor has this name, returns the first
// one.
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

// Runs MODEL's own forward, in its current mode, with LibTorch's interpreter and without the
// lowered graph. BATCH has the values of LOWERED's arguments. Returns the loss, which LOSS computes
// from forward's result, with its autograd graph. Throws Error{kInput} if forward cannot be called
// like this, and what LibTorch throws. REQUIRES: LOSS is not a preference loss.
at::Tensor own_loss(graph::Model& model, const graph::LoweredGraph& lowered,
                    const config::LossConfig& loss, const std::vector<IValue>& batch) {
    // Makes the interpreter run node by node: no fusion, and no derivatives from LibTorch's
    // compiler.
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

}  // namespace

// Returns what LibTorch computes from BATCH with the forward of the model in its file. All
// floating-point values are in TYPE; if TYPE is nullopt, weights keep the types of the file.
WholeReference::Sums WholeReference::computed_by_libtorch(
    std::optional<at::ScalarType> type, bool training,
    const std::vector<c10::IValue>& batch) const {
    const graph::ComputeContext context(true);  // the job's thread may be under autocast
    graph::Model model = type ? load_in_fp32(path_) : load_as_torch(path_, setup_.kept_layers());
    model.set_training(training);
    std::vector<c10::IValue> inputs = batch;
    if (type == at::kDouble) {
        convert(tensors_of(model), at::kDouble);
        for (c10::IValue& value : inputs) value = graph::map_tensors(value, to_double);
    }
    const at::Tensor loss = own_loss(model, whole_.lowered(), setup_.config().loss, inputs);
    Sums mine;
    mine.loss = loss.item<double>();
    torch::autograd::backward({loss}, {at::full(loss.sizes(), 1.0, loss.options())});
    // Several parameters may have the same name or an empty name. They are in the same order in
    // both models.
    std::map<std::string, std::vector<at::Tensor>> named;
    for (const graph::ModelParameter& parameter : model.parameters())
        named[parameter.name].push_back(parameter.tensor);
    std::vector<at::Tensor> leaves;
    for (const graph::ModelParameter& parameter : model_.parameters()) {
        std::vector<at::Tensor>& of_name = named[parameter.name];
        leaves.push_back(of_name.empty() ? at::zeros({0}) : of_name.front());
        if (!of_name.empty()) of_name.erase(of_name.begin());
    }
    take_gradients(leaves, type.value_or(at::kFloat), mine);
    return mine;
}

// Returns a text about the difference between forward's result OWN and the graph's result EXACT;
// empty if rounding explains the difference. ROUNDED, if it is not null, is the graph's result with
// rounding errors; OWN may have errors of this size.
std::string WholeReference::difference_of(const Sums& own, const Sums& exact,
                                          const Sums* rounded) const {
    const at::NoGradGuard no_grad;
    const auto off = [](const at::Tensor& a, const at::Tensor& b) {
        if (!a.defined() || !b.defined()) return largest(a.defined() ? a : b);
        return largest(a.to(at::kDouble) - b);
    };
    constexpr double kOfLoss = 1e-5, kOfGradient = 1e-4, kOfAll = 1e-6;
    double allowed = kOfLoss * std::abs(exact.loss) + 1e-9;
    if (rounded != nullptr) allowed += kOrders * std::abs(rounded->loss - exact.loss);
    if (!(std::abs(own.loss - exact.loss) <= allowed))
        return fmt::format("its loss is {:.9g}, but the graph's loss is {:.9g}", own.loss,
                           exact.loss);
    double all = 0;
    for (const at::Tensor& gradient : exact.gradients)
        if (gradient.defined()) all = std::max(all, largest(gradient));
    for (size_t p = 0; p < exact.gradients.size(); ++p) {
        const at::Tensor &mine = own.gradients[p], &wanted = exact.gradients[p];
        if (!mine.defined() && !wanted.defined()) continue;
        const double size = wanted.defined() ? largest(wanted) : 0;
        allowed = kOfGradient * size + kOfAll * all;
        if (rounded != nullptr && wanted.defined())
            allowed += orders_of(wanted.numel()) * off(rounded->gradients[p], wanted);
        const double difference = off(mine, wanted);
        if (!(difference <= allowed))
            return fmt::format(
                "its gradient of {} differs from the graph's by up to {:.3g}, where the largest is "
                "{:.3g}",
                printable(setup_.whole_model().parameters()[p].name), difference, size);
    }
    return {};
}

// Returns the reason why the model's own forward cannot be compared with the graph; empty if it
// can.
std::string WholeReference::why_not_run() const {
    if (setup_.config().lora.on()) return "it does not include the adapters";
    if (setup_.config().loss.is_preference()) return "it does not include the preference loss";
    return {};
}

// Returns the factor that turns the graph's loss of BATCH into the loss that forward returns. With
// mean "token", the graph returns a sum over targets, but forward returns a mean.
double WholeReference::weight_by_itself(const std::vector<c10::IValue>& batch) {
    return setup_.config().loss.mean == config::LossMean::kToken ? loss_weight({{batch}}) : 1;
}

// Returns a text about the difference on BATCH between the model's own forward and EXACT, the
// result of GRAPH in fp64.
std::string WholeReference::difference_from(const Sums& exact, const graph::LoweredGraph& graph,
                                            bool training, const std::vector<c10::IValue>& batch) {
    Sums own, rounded;
    const double weight = weight_by_itself(batch);
    try {
        own = computed_by_libtorch(at::kFloat, training, batch);
    } catch (const std::exception&) {
        // Forward may work only with weights in the file's 16-bit types. Its rounding errors are
        // then as large as the job's.
        if (!training || !whole_.states().empty() || whole_.lowered().compute_dtype == at::kFloat)
            throw;
        own = computed_by_libtorch(std::nullopt, training, batch);
        add_step(batch, {}, {weight}, rounded);
        return difference_of(own, exact, &rounded);
    }
    if (!std::isfinite(own.loss)) {
        forward_not_run_ = "its loss is not finite";
        return {};
    }
    std::string different = difference_of(own, exact, nullptr);
    if (different.empty()) return {};
    // Rounding may explain the difference: checks forward's own code in fp64, then the graph in
    // fp32, which rounds as forward does.
    try {
        const Sums wide = computed_by_libtorch(at::kDouble, training, batch);
        if (difference_of(wide, exact, nullptr).empty()) return {};
    } catch (const std::exception&) {  // forward's code may work only in fp32
    }
    rounded = computed(graph, at::kFloat, batch, {}, {weight});
    return difference_of(own, exact, &rounded);
}

// Compares the graph with the model's own forward on BATCH. Both run without random numbers: if the
// graph draws any, they run in evaluation mode. Returns a text about the difference; empty if they
// are equal.
std::string WholeReference::compare_forward(const std::vector<c10::IValue>& batch) {
    forward_not_run_ = why_not_run();
    if (!forward_not_run_.empty()) return {};
    const bool training = graph::find_node(*in_double_.graph->block(), graph::draws) == nullptr;
    std::string different;
    try {
        const graph::LoweredGraph graph = lowered_in_fp32(training);
        if (!training && graph::find_node(*graph.graph->block(), graph::draws) != nullptr)
            forward_not_run_ = "it draws random numbers even in evaluation mode";
        if (graph.takes_module) forward_not_run_ = "its graph needs the module in evaluation mode";
        if (!forward_not_run_.empty()) return {};
        const double weight = weight_by_itself(batch);
        const Sums exact = computed(graph::in_double(graph), at::kDouble, batch, {}, {weight});
        different = difference_from(exact, graph, training, batch);
    } catch (const Error& error) {
        if (error.code() == ExitCode::kDiverged) return error.what();
        forward_not_run_ = error.what();
    } catch (const std::exception& error) {
        const std::string text = error.what();
        forward_not_run_ = printable(text.substr(0, text.find('\n')));
    }
    if (different.empty()) return {};
    return fmt::format(
        "the graph that dslaunch made of the model's forward does not match the forward that "
        "LibTorch runs: {}; please report this together with the model",
        different);
}

}  // namespace dslaunch::job
