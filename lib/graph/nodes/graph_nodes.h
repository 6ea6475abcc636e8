// Helpers for nodes and values of a TorchScript graph, for all parts of the lowering. No state.
#pragma once

#include <torch/csrc/jit/ir/ir.h>

#include <algorithm>
#include <cstddef>
#include <initializer_list>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "graph/nodes/names.h"

namespace dslaunch::graph {

// Calls USE with each node of BLOCK. The nodes in a node's own blocks come before the node. USE may
// remove the node that it gets, and add nodes before it. BLOCK and the nodes may be const.
template <typename Block, typename Use>
void for_each_node(Block& block, const Use& use) {
    for (auto it = block.nodes().begin(); it != block.nodes().end();) {
        auto* const node = *it++;
        for (auto* inner : node->blocks()) for_each_node(*inner, use);
        use(*node);
    }
}

// Calls USE with the nodes in NODE's blocks, and then with NODE.
template <typename Node, typename Use>
void for_each_node_of(Node& node, const Use& use) {
    for (auto* block : node.blocks()) for_each_node(*block, use);
    use(node);
}

// Calls USE with every value that NODE or a node in its blocks reads, each time that it is read.
template <typename Use>
void for_each_read(const Node& node, const Use& use) {
    for_each_node_of(node, [&](const Node& inner) {
        for (const Value* input : inner.inputs()) use(input);
        for (const Block* block : inner.blocks())
            for (const Value* output : block->outputs()) use(output);
    });
}

// Follows the chain of values from which VALUE was computed, and returns the value at which the
// chain ends. NEXT(value) returns the input of the value's node with which the chain continues, or
// null to end the chain.
template <typename Value, typename Next>
Value* follow_back(Value* value, const Next& next) {
    while (Value* const before = next(value)) value = before;
    return value;
}

// Walks over nodes, beginning with the nodes in OPEN, and calls VISIT(node, open) once for each
// node. VISIT appends to `open` the nodes to visit; the last node in `open` is visited next.
// Returns false as soon as VISIT does.
template <typename Visit>
bool visit_once(std::vector<const Node*> open, const Visit& visit) {
    std::unordered_set<const Node*> seen;
    while (!open.empty()) {
        const Node* const node = open.back();
        open.pop_back();
        if (seen.insert(node).second && !visit(*node, open)) return false;
    }
    return true;
}

// Returns a node of BLOCK or its blocks for which IS_IT returns true; null if there is none.
template <typename Predicate>
const Node* find_node(const Block& block, const Predicate& is_it) {
    for (const Node* node : block.nodes()) {
        if (is_it(*node)) return node;
        for (const Block* inner : node->blocks())
            if (const Node* found = find_node(*inner, is_it)) return found;
    }
    return nullptr;
}

// Returns true if IS_IT returns true for NODE or for a node in its blocks.
template <typename Predicate>
bool is_any_node_of(const Node& node, const Predicate& is_it) {
    return is_it(node) || std::ranges::any_of(node.blocks(), [&](const Block* inner) {
               return find_node(*inner, is_it) != nullptr;
           });
}

// Returns the top-level node that is NODE or contains it.
inline const Node* top_of(const Node* node) {
    const Block* const top = node->owningGraph()->block();
    while (node->owningBlock() != top) node = node->owningBlock()->owningNode();
    return node;
}

// Returns true if NODE is one of the operators NAMES, such as "aten::view".
[[nodiscard]] bool is_one_of(const Node& node, std::initializer_list<std::string_view> names);

// Returns the index of the input of NODE that is argument NAME of its operator; nothing if there is
// no such argument.
[[nodiscard]] std::optional<size_t> argument_at(const Node& node, const char* name);
// Returns the number in a constant argument; nothing if the argument is computed or None.
[[nodiscard]] std::optional<double> constant_number(const Node& node, const char* name);

// Adds a node of KIND with ARGUMENTS at the insert point of LIKE's graph. The node has LIKE's scope
// and source line.
Value* insert_like(const Node& like, Symbol kind, const std::vector<NamedValue>& arguments);

// A map from the values and nodes of a graph to their copies in another graph.
struct Twins {
    std::unordered_map<const Value*, Value*> values;
    std::unordered_map<const Node*, Node*> nodes;
};
// Adds to TWINS the values and nodes of FROM, including its inner blocks, with their copies in TO.
void pair_twins(const Block& from, Block& to, Twins& twins);

// Returns true if the type of VALUE is a tensor, not an optional tensor.
inline bool is_tensor(const Value& value) {
    return value.type()->isSubtypeOf(*c10::TensorType::get());
}

// Returns false if values of TYPE are only numbers, texts and devices, or lists, tuples and dicts
// of these.
[[nodiscard]] bool may_hold_tensors(const c10::Type& type);

// Returns the indices of the inputs that NODE itself writes in place, including lists of tensors.
[[nodiscard]] std::vector<size_t> written_inputs(const Node& node);
// Returns the input that NODE writes in place and returns as output OUTPUT. Returns null if NODE
// returns another value as this output.
[[nodiscard]] Value* overwritten_as(const Node& node, size_t output);
// Returns the value that VALUE was before in-place writes changed it; VALUE itself if there were no
// such writes.
[[nodiscard]] const Value* before_writes(const Value* value);

}  // namespace dslaunch::graph
