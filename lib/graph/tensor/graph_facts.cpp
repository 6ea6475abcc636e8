#include "graph/tensor/graph_facts.h"

#include <ATen/core/grad_mode.h>
#include <ATen/core/stack.h>
#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/runtime/custom_operator.h>
#include <torch/csrc/jit/runtime/interpreter.h>

#include "base/check.h"
#include "base/error.h"
#include "base/text/torch_reason.h"
#include "graph/lower/precision.h"
#include "graph/memory/shared_storage.h"
#include "graph/segment/compute_context.h"
#include "graph/segment/cut.h"
#include "graph/sharing/tensor_group.h"
#include "graph/sharing/tensor_operators.h"

namespace dslaunch::graph {

namespace {

// Returns a reference to the function that receives the values of the graph that this thread runs.
// The function is null if no such run is active.
const WholeGraph::See*& seer_of_thread() {
    thread_local const WholeGraph::See* see = nullptr;
    return see;
}

class SeerScope {
  public:
    explicit SeerScope(const WholeGraph::See& see) { seer_of_thread() = &see; }
    SeerScope(const SeerScope&) = delete;
    SeerScope& operator=(const SeerScope&) = delete;
    ~SeerScope() { seer_of_thread() = nullptr; }
};

void register_probe() {
    static const torch::jit::RegisterOperators operators({torch::jit::Operator(
        "dslaunch::tensor_probe(t value, int index) -> ()",
        [](torch::jit::Stack& stack) {
            const auto index = static_cast<size_t>(torch::jit::pop(stack).toInt());
            const IValue value = torch::jit::pop(stack);
            const WholeGraph::See* see = seer_of_thread();
            if (see != nullptr && *see) (*see)(index, value);
        },
        c10::AliasAnalysisKind::CONSERVATIVE)});
}

bool is_shown(const Value& value) {
    const c10::TypePtr& type = value.type();
    if (type->isSubtypeOf(*c10::TensorType::get()) || type->isSubtypeOf(*c10::IntType::get()))
        return true;
    if (type->kind() != c10::TypeKind::ListType) return false;
    const c10::TypePtr& element = type->expectRef<c10::ListType>().getElementType();
    return element->isSubtypeOf(*c10::TensorType::get()) ||
           element->isSubtypeOf(*c10::IntType::get());
}

void insert_probe(Graph& graph, Value* value, size_t index) {
    Node* maker = value->node();
    const bool is_input = maker == graph.param_node();
    const WithInsertPoint here(is_input ? *graph.nodes().begin() : maker->next());
    Value* number = graph.insertConstant(static_cast<int64_t>(index));
    Node* probe =
        graph.create(Symbol::fromQualString("dslaunch::tensor_probe"), {value, number}, 0);
    graph.insertNode(probe);
    if (!is_input) probe->copyMetadata(maker);
}

void add_facts(const Value* value, const IValue& seen, GraphFacts& facts) {
    const auto fact = [](const at::Tensor& tensor) {
        return TensorFact{tensor.sizes().vec(), tensor.scalar_type()};
    };
    if (seen.isInt()) {
        facts.integers[value] = seen.toInt();
    } else if (seen.isTensor() && seen.toTensor().defined()) {
        facts.tensors[value] = {fact(seen.toTensor())};
    } else if (seen.isTensorList()) {
        std::vector<TensorFact> all;
        for (const at::Tensor& tensor : seen.toTensorVector()) all.push_back(fact(tensor));
        facts.tensors[value] = std::move(all);
    }
}

}  // namespace

WholeGraph::ValueList WholeGraph::values_of(const LoweredGraph& lowered) {
    ValueList values;
    for (Node* node : lowered.graph->nodes()) {
        if (node->kind() == prim::Constant) continue;
        for (Value* output : node->outputs())
            if (is_shown(*output)) values.push_back(output);
    }
    return values;
}

WholeGraph::WholeGraph(const Model& model, const LoweredGraph& lowered, const ValueList& probed)
    : compute_dtype_(lowered.compute_dtype) {
    register_probe();
    register_tensor_operators();
    LoweredGraph copy = lowered;
    Twins twins;
    copy.graph = std::make_shared<Graph>();
    copy.graph->block()->cloneFrom(lowered.graph->block(), nullptr);
    pair_twins(*lowered.graph->block(), *copy.graph->block(), twins);
    for (size_t i = 0; i < probed.size(); ++i)
        if (probed[i] != nullptr) insert_probe(*copy.graph, twins.values.at(probed[i]), i);

    const CutMap map = find_cuts(copy, model);
    LiveRange live;
    for (size_t i = copy.first_argument(); i < copy.first_parameter(); ++i)
        live.in.push_back(copy.graph->inputs()[i]);
    live.out.assign(copy.graph->outputs().begin(), copy.graph->outputs().end());
    segment_ =
        build_segment(model, copy, map, {0, static_cast<int64_t>(map.nodes.size()), 0}, live);
    segment_.code = std::make_shared<Code>(segment_.graph, "whole");
}

std::vector<IValue> WholeGraph::run(const GraphInputs& inputs, const RunMode& mode,
                                    const See& see) const {
    DSL_CHECK(!segment_.takes_module, "a graph that needs its module cannot run alone");
    torch::jit::Stack stack(inputs.arguments.begin(), inputs.arguments.end());
    for (const int parameter : segment_.parameters)
        stack.emplace_back(inputs.parameters[parameter]);
    // Buffers are copied: forward may change them, and autograd must not see that the caller's
    // buffers are restored. Copies share memory as the originals do, so that a write to one changes
    // the others too.
    std::vector<at::Tensor> buffers;
    for (const int buffer : segment_.buffers) buffers.push_back(inputs.buffers[buffer]);
    for (at::Tensor& copy : copied_together(buffers)) stack.emplace_back(std::move(copy));
    const c10::Device device =
        inputs.parameters.empty() ? c10::Device(c10::kCPU) : inputs.parameters.front().device();
    {
        const ComputeContext context(mode.records_gradients, compute_dtype_, device.type());
        const TensorGroupScope group(mode.group);
        const DrawScope draws(inputs.key, 0, device);
        const SeerScope seer(see);
        try {
            torch::jit::InterpreterState(*segment_.code).run(stack);
        } catch (const std::exception& error) {
            fail(ExitCode::kInput, "the graph failed{}: {}", precision_advice(compute_dtype_),
                 torch_reason(error));
        }
    }
    return {stack.begin(), stack.end()};
}

GraphFacts observe(const Model& model, const LoweredGraph& lowered, const GraphInputs& inputs) {
    GraphFacts facts;
    const Graph& graph = *lowered.graph;
    for (size_t i = 0; i < inputs.arguments.size(); ++i)
        add_facts(graph.inputs()[lowered.first_argument() + i], inputs.arguments[i], facts);
    for (size_t i = 0; i < lowered.parameters.size(); ++i)
        add_facts(graph.inputs()[lowered.first_parameter() + i],
                  inputs.parameters[lowered.parameters[i]], facts);
    for (size_t i = 0; i < lowered.buffers.size(); ++i)
        add_facts(graph.inputs()[lowered.first_buffer() + i], inputs.buffers[lowered.buffers[i]],
                  facts);
    for (const Node* node : graph.nodes())
        if (node->kind() == prim::Constant)
            if (const auto value = torch::jit::toIValue(node->output()))
                add_facts(node->output(), *value, facts);
    const WholeGraph::ValueList values = WholeGraph::values_of(lowered);
    static_cast<void>(
        WholeGraph(model, lowered, values).run(inputs, {}, [&](size_t index, const IValue& value) {
            add_facts(values[index], value, facts);
        }));
    return facts;
}

bool writes(const Node& node) {
    const c10::FunctionSchema* schema = node.maybeSchema();
    return schema != nullptr && schema->is_mutable();
}

}  // namespace dslaunch::graph
