// Questions about nodes and values of a TorchScript graph that all parts of a lowering ask. No
// state.
#pragma once

#include <torch/csrc/jit/ir/ir.h>

#include <algorithm>
#include <cstddef>
#include <initializer_list>
#include <map>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "graph/nodes/names.h"

namespace dslaunch::graph {

// Calls USE with each node of BLOCK, after the nodes in the blocks of that node. USE may remove the
// node that it is called with, and add nodes in front of it. BLOCK and the nodes may be const.
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

// Returns a node of BLOCK or its blocks for which IS_IT is true; null: there is no such node.
template <typename Predicate>
const Node* find_node(const Block& block, const Predicate& is_it) {
    for (const Node* node : block.nodes()) {
        if (is_it(*node)) return node;
        for (const Block* inner : node->blocks())
            if (const Node* found = find_node(*inner, is_it)) return found;
    }
    return nullptr;
}

// Returns true if IS_IT is true of NODE or of a node in its blocks.
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

// Returns true if NODE is an operator of one of NAMES, "aten::view".
[[nodiscard]] bool is_one_of(const Node& node, std::initializer_list<std::string_view> names);

// Returns the input of NODE that is argument NAME of its operator; nothing: it has no such input.
[[nodiscard]] std::optional<size_t> argument_at(const Node& node, const char* name);
// Returns the number in a constant argument; nothing if the argument is computed or None.
[[nodiscard]] std::optional<double> constant_number(const Node& node, const char* name);

// Adds a node of KIND on ARGUMENTS at the insert point of LIKE's graph, with LIKE's scope and line.
Value* insert_like(const Node& like, Symbol kind, const std::vector<NamedValue>& arguments);

// The values and nodes of a graph's copy, by the original ones.
struct Twins {
    std::unordered_map<const Value*, Value*> values;
    std::unordered_map<const Node*, Node*> nodes;
};
// Pairs FROM, and the blocks in it, with its copy TO.
void pair_twins(const Block& from, Block& to, Twins& twins);

inline bool is_tensor(const Value& value) {
    return value.type()->isSubtypeOf(*c10::TensorType::get());
}

// Returns false if values of TYPE are numbers, texts and devices, or lists, tuples, dicts of these.
[[nodiscard]] bool may_hold_tensors(const c10::Type& type);

// Returns the inputs that NODE itself writes in place, by index; lists of tensors too.
[[nodiscard]] std::vector<size_t> written_inputs(const Node& node);
// Returns the input that NODE writes and returns as output OUTPUT; null: OUTPUT is another value.
[[nodiscard]] Value* overwritten_as(const Node& node, size_t output);
// Returns the value whose tensor VALUE is after in-place writes; VALUE if no node has written it.
[[nodiscard]] const Value* before_writes(const Value* value);

// Operands of a block that computes without gradients. They are detached before it; after it,
// operands that it has written in place are again their old tensors, with their gradients.
class DetachedOperands {
  public:
    // Replaces the tensors among VALUES at their graph's insert point.
    void detach(std::vector<Value*>& values);
    // Returns the value that stands for OUTPUT of the block after it.
    [[nodiscard]] Value* given_back(Value* output) const;

  private:
    std::map<const Value*, Value*> before_;  // by the detached value
};

}  // namespace dslaunch::graph
