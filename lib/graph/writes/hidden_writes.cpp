#include "graph/writes/hidden_writes.h"

#include <ATen/core/alias_info.h>
#include <ATen/core/function.h>
#include <ATen/core/interned_strings.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/ir/ir.h>

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "graph/lowered/lowered_graph.h"

namespace dslaunch::graph {

namespace aten = c10::aten;
namespace prim = c10::prim;
using torch::jit::Block;
using torch::jit::Graph;
using torch::jit::Node;
using torch::jit::Value;

namespace {

// All nodes, those in blocks too: callers add and remove some.
void add_nodes(Block& block, std::vector<Node*>& nodes) {
    for (Node* node : block.nodes()) {
        nodes.push_back(node);
        for (Block* inner : node->blocks()) add_nodes(*inner, nodes);
    }
}

std::vector<Node*> nodes_of(Graph& graph) {
    std::vector<Node*> nodes;
    add_nodes(*graph.block(), nodes);
    return nodes;
}

// True if NODE writes the elements of its input INDEX, a list.
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
    fail(ExitCode::kInput, "{}: it writes a list of tensors in place, {}: write them one by one",
         describe_node(node), why);
}

void write_apart(Node* node) {
    constexpr std::string_view kForeach = "aten::_foreach_";
    const std::string name = node->kind().toQualString();
    Node* const list = node->input(0)->node();
    if (list->kind() != prim::ListConstruct)
        refuse_list(*node, "and which ones shows only as it runs");
    if (!std::string_view(name).starts_with(kForeach) || !name.ends_with('_'))
        refuse_list(*node, "which cannot be followed");
    Graph& graph = *node->owningGraph();
    const torch::jit::WithInsertPoint here(node);
    Node* const made = graph.create(c10::Symbol::fromQualString(name.substr(0, name.size() - 1)),
                                    node->inputs(), 1);
    made->output()->setType(c10::ListType::ofTensors());
    made->copyMetadata(node);
    graph.insertNode(made);
    if (made->maybeSchema() == nullptr) refuse_list(*node, "and no operator gives the new values");
    const size_t count = list->inputs().size();
    Node* const unpacked = graph.insertNode(graph.createListUnpack(made->output(), count));
    for (size_t i = 0; i < count; ++i) {
        Value* const copied = graph.insert(aten::copy_, {list->input(i), unpacked->output(i)});
        copied->node()->copyMetadata(node);
    }
    // The list that some of them give back is the one that they were given.
    if (!node->outputs().empty()) node->output(0)->replaceAllUsesWith(node->input(0));
    node->destroy();
}

// A function of torch.nn.functional, and the places of its arguments, the function itself being 0.
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
                if (i > 0) refuse_list(*node, "which cannot be followed");
                write_apart(node);
                break;
            }
}

void restore_max_norm(Graph& graph) {
    static const auto renorm = c10::Symbol::fromQualString("aten::embedding_renorm_");
    for (Node* node : nodes_of(graph)) {
        const TableCall* const call = table_call(*node);
        if (call == nullptr || node->prev()->kind() == renorm) continue;
        const auto max_norm = torch::jit::toIValue(node->input(call->max_norm));
        if (!max_norm || !max_norm->isDouble()) continue;
        const torch::jit::WithInsertPoint here(node);
        Value* const weight = graph.insert(aten::detach, {node->input(call->weight)});
        Value* const indices = graph.insert(aten::contiguous, {node->input(call->indices)});
        Value* const written = graph.insert(
            renorm, {weight, indices, node->input(call->max_norm), node->input(call->norm_type)});
        for (const Value* made : {weight, indices, written})
            const_cast<Value*>(made)->node()->copyMetadata(node);
    }
}

}  // namespace

void show_hidden_writes(const torch::jit::Module& module) {
    std::set<const torch::jit::Function*> seen;
    for (const torch::jit::Module& part : module.modules())
        for (const torch::jit::Method& method : part.get_methods()) {
            if (!seen.insert(&method.function()).second) continue;
            write_lists_apart(*method.graph());
            restore_max_norm(*method.graph());
        }
}

}  // namespace dslaunch::graph
