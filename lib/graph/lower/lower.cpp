#include "graph/lower/lower.h"

#include <torch/csrc/jit/api/function_impl.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/passes/constant_propagation.h>
#include <torch/csrc/jit/passes/dead_code_elimination.h>
#include <torch/csrc/jit/passes/inline_fork_wait.h>
#include <torch/csrc/jit/passes/inliner.h>
#include <torch/csrc/jit/passes/loop_unrolling.h>
#include <torch/csrc/jit/passes/lower_tuples.h>
#include <torch/csrc/jit/passes/peephole.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/check.h"
#include "base/error.h"
#include "base/text.h"
#include "graph/adapter/adapters.h"
#include "graph/adapter/packed_base.h"
#include "graph/archive/python_operators.h"
#include "graph/compress/compressed_layers.h"
#include "graph/draws/dropout_seeds.h"
#include "graph/lower/attribute_lifter.h"
#include "graph/lower/cpu_products.h"
#include "graph/lower/device_rewrite.h"
#include "graph/lower/distill.h"
#include "graph/lower/forward_values.h"
#include "graph/lower/loss.h"
#include "graph/lower/precision.h"
#include "graph/lower/target_count.h"
#include "graph/nodes/graph_nodes.h"
#include "graph/writes/hidden_writes.h"
#include "graph/writes/no_grad.h"
#include "graph/writes/written_state.h"

namespace dslaunch::graph {

namespace {

int64_t count_calls(const Block& block) {
    int64_t calls = 0;
    for_each_node(block, [&](const Node& node) {
        if (node.kind() == prim::CallFunction || node.kind() == prim::CallMethod) ++calls;
    });
    return calls;
}

// Inlines until nothing changes: with the optimiser off, Inline expands only one level at a time.
void inline_to_fixpoint(Graph& graph) {
    constexpr int kDepthMax = 1000;  // TorchScript has no recursion; a deeper nest is a bug
    int64_t before = -1;
    for (int depth = 0; depth < kDepthMax; ++depth) {
        const int64_t calls = count_calls(*graph.block());
        if (calls == 0 || calls == before) return;
        before = calls;
        torch::jit::Inline(graph);
    }
}

// Returns the first torch.jit.fork or wait; null if there is none.
const Node* find_fork(const Block& block) {
    return find_node(block, [](const Node& node) {
        return node.kind() == prim::fork || node.kind() == aten::wait;
    });
}

// Replaces calls by the functions' nodes. The function of a torch.jit.fork is computed at the place
// of the fork, so that it belongs to a segment.
void inline_calls(std::shared_ptr<Graph>& graph) {
    constexpr int kDepthMax = 100;  // forks inside forked functions
    inline_to_fixpoint(*graph);
    for (int depth = 0; depth < kDepthMax && find_fork(*graph->block()) != nullptr; ++depth) {
        torch::jit::InlineForkWait(graph);
        inline_to_fixpoint(*graph);
    }
    if (const Node* left = find_fork(*graph->block()))
        fail(ExitCode::kInput,
             "{}: a torch.jit.fork future that is kept in a list, or created in a branch and "
             "awaited outside it, is not supported; call the function directly, without fork and "
             "wait",
             describe_node(*left));
}

// Returns true if the forward of a module reads whether it is in train mode, as the forward of
// dropout does.
bool reads_mode(const Block& block) {
    return find_node(block, [](const Node& node) {
               return node.kind() == prim::GetAttr && node.s(attr::name) == "training";
           }) != nullptr;
}

void simplify(std::shared_ptr<Graph>& graph) {
    torch::jit::LowerSimpleTuples(graph);
    torch::jit::ConstantPropagation(graph);
    // Shapes recorded by a tracer may differ in a run, so they must not be folded.
    torch::jit::PeepholeOptimize(graph, /*disable_shape_peepholes=*/true);
    fold_dicts(*graph);
    torch::jit::ConstantPropagation(graph);
    torch::jit::UnrollConstantLoops(graph);
    torch::jit::ConstantPropagation(graph);
    torch::jit::LowerSimpleTuples(graph);
    torch::jit::EliminateDeadCode(graph);
}

std::string list_names(const std::vector<c10::Argument>& arguments) {
    std::vector<std::string> names;
    for (size_t i = 1; i < arguments.size(); ++i) names.push_back(arguments[i].name());
    return join(names, ", ");
}

bool is_tensor_dict(const c10::Type& type) {
    const auto dict = type.cast<c10::DictType>();
    return dict != nullptr && dict->getKeyType()->kind() == c10::TypeKind::StringType &&
           dict->getValueType()->isSubtypeOf(*c10::TensorType::get());
}

// Removes the arguments that the data do not supply, and uses their defaults instead.
void bind_arguments(const std::vector<c10::Argument>& schema, const LowerOptions& options,
                    LoweredGraph& lowered) {
    Graph& graph = *lowered.graph;
    for (const std::string& name : options.arguments) {
        bool known = false;
        for (size_t i = 1; i < schema.size(); ++i) known = known || schema[i].name() == name;
        if (!known)
            fail(ExitCode::kInput, "forward has no argument `{}`; it takes: {}", printable(name),
                 list_names(schema));
    }
    WithInsertPoint at_start(*graph.nodes().begin());
    for (size_t i = schema.size(); i-- > 1;) {
        const c10::Argument& argument = schema[i];
        const auto& given = options.arguments;
        const bool is_offered = std::ranges::count(options.offered, argument.name()) > 0 &&
                                c10::TensorType::get()->isSubtypeOf(*argument.type());
        const bool supplied =
            given.empty() ? is_offered || !argument.default_value().has_value()
                          : std::find(given.begin(), given.end(), argument.name()) != given.end();
        if (supplied) {
            lowered.arguments.insert(lowered.arguments.begin(), argument.name());
            lowered.argument_types.insert(lowered.argument_types.begin(), argument.type());
            if (is_tensor_dict(*argument.type())) {
                split_dict_argument(lowered, 0, graph.inputs()[i]);
            } else if (argument.type()->kind() == c10::TypeKind::OptionalType &&
                       c10::TensorType::get()->isSubtypeOf(*argument.type())) {
                graph.inputs()[i]->setType(c10::TensorType::get());  // never None
            }
            continue;
        }
        if (!argument.default_value())
            fail(ExitCode::kInput,
                 "forward's argument `{}` has no default value and the data do not supply it; "
                 "forward takes: {}",
                 argument.name(), list_names(schema));
        const auto constant = torch::jit::tryInsertConstant(graph, *argument.default_value());
        DSL_CHECK(constant.has_value(), "the default of argument {} is not a constant",
                  argument.name());
        graph.inputs()[i]->replaceAllUsesWith(*constant);
        graph.eraseInput(i);
    }
}

// Loads and lowers the teacher that OPTIONS name.
Teacher lower_teacher(const LowerOptions& options) {
    LowerOptions of_teacher;
    of_teacher.trains = false;
    of_teacher.arguments = options.arguments;
    of_teacher.offered = options.offered;
    of_teacher.loss = options.loss;
    of_teacher.loss.mean = config::LossMean::kMicroBatch;
    of_teacher.device = options.device;
    Model model = Model::load(options.compression.distill.teacher);
    LoweredGraph lowered = lower(model, of_teacher);
    return {std::move(model), std::move(lowered)};
}

}  // namespace

LoweredGraph lower(Model& model, const LowerOptions& options) {
    use_wide_products();
    model.set_training(options.trains);
    show_hidden_writes(model.module());
    // A preference loss needs logits. A language model whose forward computes its own loss may have
    // a method that returns them.
    const bool has_logits = model.module().find_method("logits").has_value();
    const bool wants_logits = options.logits || options.loss.is_preference();
    const torch::jit::Method method =
        model.module().get_method(wants_logits && has_logits ? "logits" : "forward");
    config::LossConfig output_of = options.loss;
    if (options.logits) output_of.kind = config::LossKind::kCrossEntropy;
    LoweredGraph lowered;
    lowered.graph = torch::jit::toGraphFunction(method.function()).graph()->copy();
    replace_python_calls(*lowered.graph);
    inline_calls(lowered.graph);
    refuse_unseen_writes(*lowered.graph);
    lowered.reads_mode = reads_mode(*lowered.graph->block());
    bind_arguments(method.function().getSchema().arguments(), options, lowered);
    lift_attributes(model, lowered, [&lowered] { simplify(lowered.graph); });
    detach_without_gradients(*lowered.graph);
    choose_output(output_of, lowered);
    rewrite_devices(*lowered.graph->block(), options.device);
    simplify(lowered.graph);
    lowered.compute_dtype = options.compute_dtype;
    lowered.parameter_dtype = options.keeps_fp32_parameters ? at::kFloat : options.compute_dtype;
    lowered.device = options.device;
    // A tracer's types name its device too, and simplify() may have made device constants from
    // them.
    rewrite_devices(*lowered.graph->block(), options.device);
    if (!options.logits) {
        append_loss(options.loss, lowered);
        find_targets(options.loss, lowered);
    }
    if (options.lora.on())
        add_adapters(model, lowered, {options.lora, options.adapter_seed, options.trains});
    if (options.compression.changes_graph())
        compress_layers(model, lowered,
                        {options.compression, options.adapter_seed, options.trains});
    // This runs after compression, which would otherwise change the teacher's layers too.
    if (options.trains && options.compression.distill.teaches())
        add_teacher(model, lowered, options.compression.distill, lower_teacher(options));
    settle_written_state(model, lowered, draws);
    if (options.base != config::LoraBase::kAsIs) pack_base(model, lowered, options.base);
    if (lowered.compute_dtype != at::kFloat)
        insert_precision_casts(*lowered.graph, lowered.compute_dtype);
    drop_unused_inputs(lowered);
    return lowered;
}

}  // namespace dslaunch::graph
