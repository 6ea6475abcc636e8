// Questions about nodes and values of a TorchScript graph that all parts of a lowering ask. Pure.
#pragma once

#include <torch/csrc/jit/ir/ir.h>

#include <algorithm>

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

// Returns a node of BLOCK or of a block in it that IS_IT is true of; null: there is none.
template <typename Predicate>
const torch::jit::Node* find_node(const torch::jit::Block& block, const Predicate& is_it) {
    for (const torch::jit::Node* node : block.nodes()) {
        if (is_it(*node)) return node;
        for (const torch::jit::Block* inner : node->blocks())
            if (const torch::jit::Node* found = find_node(*inner, is_it)) return found;
    }
    return nullptr;
}

// True if IS_IT is true of NODE or of a node in its blocks.
template <typename Predicate>
bool is_any_node_of(const torch::jit::Node& node, const Predicate& is_it) {
    return is_it(node) || std::ranges::any_of(node.blocks(), [&](const torch::jit::Block* inner) {
               return find_node(*inner, is_it) != nullptr;
           });
}

// Returns the node at the top level that NODE is, or is inside of.
inline const torch::jit::Node* top_of(const torch::jit::Node* node) {
    const torch::jit::Block* const top = node->owningGraph()->block();
    while (node->owningBlock() != top) node = node->owningBlock()->owningNode();
    return node;
}

inline bool is_tensor(const torch::jit::Value& value) {
    return value.type()->isSubtypeOf(*c10::TensorType::get());
}

// False: values of TYPE are numbers, texts and devices, or lists, tuples and dicts of these.
inline bool may_hold_tensors(const c10::Type& type) {
    switch (type.kind()) {
        case c10::TypeKind::IntType:
        case c10::TypeKind::FloatType:
        case c10::TypeKind::ComplexType:
        case c10::TypeKind::BoolType:
        case c10::TypeKind::NumberType:
        case c10::TypeKind::StringType:
        case c10::TypeKind::NoneType:
        case c10::TypeKind::DeviceObjType:
            return false;
        case c10::TypeKind::ListType:
        case c10::TypeKind::TupleType:
        case c10::TypeKind::DictType:
        case c10::TypeKind::OptionalType:
        case c10::TypeKind::UnionType:
            return std::ranges::any_of(type.containedTypes(), [](const c10::TypePtr& inner) {
                return may_hold_tensors(*inner);
            });
        default:
            return true;
    }
}

}  // namespace dslaunch::graph
