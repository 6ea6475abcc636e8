#include "graph/writes/hidden_writes.h"

#include <torch/csrc/jit/api/function_impl.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/ir/constants.h>

#include <algorithm>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "graph/lowered/lowered_graph.h"
#include "graph/nodes/graph_nodes.h"
#include "graph/writes/written_values.h"

namespace dslaunch::graph {

namespace {

// Returns all nodes, including nodes in blocks, as a list: callers add and remove nodes.
std::vector<Node*> nodes_of(Graph& graph) {
    std::vector<Node*> nodes;
    for_each_node(*graph.block(), [&](Node& node) { nodes.push_back(&node); });
    return nodes;
}

// Returns true if NODE writes the elements of its input INDEX, a list.
bool writes_elements(const Node& node, size_t index) {
    const c10::FunctionSchema* const schema = node.maybeSchema();
    if (schema == nullptr || index >= schema->arguments().size()) return false;
    const c10::AliasInfo* const list = schema->arguments()[index].alias_info();
    if (list == nullptr) return false;
    for (const c10::AliasInfo& element : list->containedTypes())
        if (element.isWrite()) return true;
    return false;
}

[[noreturn]] void refuse_list(const Node& node, const char* why) {
    fail(ExitCode::kInput,
         "{}: this operator writes a list of tensors in place, {}; write the tensors one by one",
         describe_node(node), why);
}

void write_apart(Node* node) {
    constexpr std::string_view kForeach = "aten::_foreach_";
    const std::string name = node->kind().toQualString();
    Node* const list = node->input(0)->node();
    if (list->kind() != prim::ListConstruct)
        refuse_list(*node, "but which tensors the list contains is known only at run time");
    if (!std::string_view(name).starts_with(kForeach) || !name.ends_with('_'))
        refuse_list(*node, "which is not supported");
    Graph& graph = *node->owningGraph();
    const WithInsertPoint here(node);
    Node* const made =
        graph.create(Symbol::fromQualString(name.substr(0, name.size() - 1)), node->inputs(), 1);
    made->output()->setType(c10::ListType::ofTensors());
    made->copyMetadata(node);
    graph.insertNode(made);
    if (made->maybeSchema() == nullptr)
        refuse_list(*node, "but LibTorch has no variant of it that returns new values");
    const size_t count = list->inputs().size();
    Node* const unpacked = graph.insertNode(graph.createListUnpack(made->output(), count));
    for (size_t i = 0; i < count; ++i)
        insert_like(*node, aten::copy_, {list->input(i), unpacked->output(i)});
    // Some of these operators return the list that they were given.
    if (!node->outputs().empty()) node->output(0)->replaceAllUsesWith(node->input(0));
    node->destroy();
}

// A function of torch.nn.functional, and the input indices of some of its arguments in a call.
// Input 0 is the function itself.
struct TableCall {
    std::string_view name;
    size_t indices, weight, max_norm, norm_type;
};
constexpr TableCall kTableCalls[] = {{".embedding", 1, 2, 4, 5}, {".embedding_bag", 1, 2, 4, 5}};

const TableCall* table_call(const Node& node) {
    if (node.kind() != prim::CallFunction) return nullptr;
    const auto type = node.input(0)->type()->cast<c10::FunctionType>();
    if (type == nullptr) return nullptr;
    const std::string name = type->function()->qualname().qualifiedName();
    if (name.find("torch.nn.functional") == std::string::npos) return nullptr;
    for (const TableCall& call : kTableCalls)
        if (name.ends_with(call.name) && node.inputs().size() > call.norm_type) return &call;
    return nullptr;
}

void write_lists_apart(Graph& graph) {
    for (Node* node : nodes_of(graph))
        for (size_t i = 0; i < node->inputs().size(); ++i)
            if (writes_elements(*node, i)) {
                if (i > 0) refuse_list(*node, "which is not supported");
                write_apart(node);
                break;
            }
}

void restore_max_norm(Graph& graph) {
    static const auto renorm = Symbol::fromQualString("aten::embedding_renorm_");
    for (Node* node : nodes_of(graph)) {
        const TableCall* const call = table_call(*node);
        if (call == nullptr || node->prev()->kind() == renorm) continue;
        const auto max_norm = torch::jit::toIValue(node->input(call->max_norm));
        if (!max_norm || !max_norm->isDouble()) continue;
        const WithInsertPoint here(node);
        Value* const weight = insert_like(*node, aten::detach, {node->input(call->weight)});
        Value* const indices = insert_like(*node, aten::contiguous, {node->input(call->indices)});
        insert_like(*node, renorm,
                    {weight, indices, node->input(call->max_norm), node->input(call->norm_type)});
    }
}

// Returns true if NODE is a dropout that returns its input unchanged, and another node writes to
// the result in place.
bool is_written_dropout(const Node& node) {
    if (!is_one_of(node, {"aten::dropout", "aten::alpha_dropout", "aten::feature_dropout",
                          "aten::feature_alpha_dropout"}))
        return false;
    if (torch::jit::constant_as<double>(node.input(1)) != 0.0 &&
        torch::jit::constant_as<bool>(node.input(2)) != false)
        return false;
    return std::ranges::any_of(node.output()->uses(), [](const Use& use) {
        return std::ranges::count(written_inputs(*use.user), use.offset) > 0;
    });
}

// Replaces aten::type_as by aten::to. Both may return their operand, but only the schema of
// aten::to says so. Also replaces a dropout by its operand if it drops nothing and its result is
// written.
void show_operands(Graph& graph) {
    for (Node* node : nodes_of(graph)) {
        if (is_written_dropout(*node)) node->output()->replaceAllUsesWith(node->input(0));
        if (node->kind() != aten::type_as) continue;
        const WithInsertPoint here(node);
        Value* const made = insert_like(*node, aten::to, {node->input(0), node->input(1)});
        made->setType(node->output()->type());
        node->output()->replaceAllUsesWith(made);
        node->destroy();
    }
}

// Makes hidden writes visible in FUNCTION and in all functions that it calls. Changes each function
// once.
void show_in(Function& function, std::set<const Function*>& seen) {
    torch::jit::GraphFunction* const compiled = torch::jit::tryToGraphFunction(function);
    if (compiled == nullptr || !seen.insert(&function).second) return;
    Graph& graph = *compiled->graph();
    write_lists_apart(graph);
    restore_max_norm(graph);
    show_operands(graph);
    for (const Node* node : nodes_of(graph)) {
        if (node->kind() != prim::CallFunction) continue;
        const auto type = node->input(0)->type()->cast<c10::FunctionType>();
        if (type != nullptr) show_in(*type->function(), seen);
    }
}

// Returns true if NODE may return its input, or a view of its input, although its schema says that
// it makes a new tensor. Returns false for a dropout, which may also return its input, because no
// model keeps the result of a dropout as state.
bool may_give_operand(const Node& node) {
    return is_one_of(node, {"aten::align_tensors", "aten::atleast_1d", "aten::atleast_2d",
                            "aten::atleast_3d", "aten::block_diag", "aten::broadcast_tensors",
                            "aten::conj_physical", "aten::dequantize", "aten::einsum",
                            "aten::meshgrid", "aten::to_dense", "aten::cartesian_prod"});
}

// Calls USE with the tensors that NODE takes, alone or in a list that a node builds.
template <typename Use>
void for_each_operand(const Node& node, const Use& use) {
    for (const Value* input : node.inputs()) {
        if (is_tensor(*input)) use(input);
        if (input->node()->kind() == prim::ListConstruct)
            for (const Value* element : input->node()->inputs()) use(element);
    }
}

}  // namespace

void show_hidden_writes(const Module& module) {
    std::set<const Function*> seen;
    for (const Module& part : module.modules())
        for (const torch::jit::Method& method : part.get_methods())
            show_in(method.function(), seen);
}

void refuse_unseen_writes(const Graph& graph) {
    std::vector<const Node*> givers;
    std::set<const Value*> roots, written;  // sets of values that share memory
    for_each_node(*graph.block(), [&](const Node& node) {
        if (may_give_operand(node)) givers.push_back(&node);
    });
    if (givers.empty()) return;
    MemorySets sets(graph);
    for (const Value* input : graph.inputs())
        if (is_tensor(*input)) roots.insert(sets.set_of(input));
    for_each_node(*graph.block(), [&](const Node& node) {
        if (node.kind() == prim::GetAttr || node.kind() == prim::Constant)
            if (is_tensor(*node.output())) roots.insert(sets.set_of(node.output()));
        for (const size_t i : written_inputs(node)) written.insert(sets.set_of(node.input(i)));
    });
    for (const Node* giver : givers) {
        if (written.count(sets.set_of(giver->output())) == 0) continue;
        for_each_operand(*giver, [&](const Value* operand) {
            if (roots.count(sets.set_of(operand)) > 0)
                fail(ExitCode::kInput,
                     "{}: forward writes the result of this operator in place, but the result may "
                     "share memory with a parameter, a buffer, a constant or an argument; write to "
                     "that tensor itself, or clone() the result",
                     describe_node(*giver));
        });
    }
}

}  // namespace dslaunch::graph
