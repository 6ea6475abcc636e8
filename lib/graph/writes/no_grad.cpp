#include "graph/writes/no_grad.h"

#include <torch/csrc/jit/ir/constants.h>

#include <map>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "graph/nodes/graph_nodes.h"

namespace dslaunch::graph {

namespace {

const Symbol kSetGradEnabled = Symbol::fromQualString("aten::set_grad_enabled");
constexpr std::string_view kNoGrad = "__torch__.torch.autograd.grad_mode.no_grad";

bool holds_no_tensor(const Value& value) {
    return !may_hold_tensors(*value.type()) ||
           (value.node()->kind() == prim::Constant && !is_tensor(value));
}

// Returns the object of the `with torch.no_grad()` that NODE enters or leaves; null if NODE does
// neither.
const Value* guard_of(const Node& node, Symbol kind) {
    if (node.kind() != kind || node.inputs().empty()) return nullptr;
    const auto type = node.input(0)->type()->cast<c10::ClassType>();
    if (type == nullptr || !type->name() || type->name()->qualifiedName() != kNoGrad)
        return nullptr;
    return node.input(0);
}

// Returns true if NODE is torch.set_grad_enabled(VALUE).
bool switches(const Node& node, bool value) {
    return node.kind() == kSetGradEnabled && torch::jit::constant_as<bool>(node.input(0)) == value;
}

// The nodes of a region without gradients, between the nodes that begin and end the region.
class Region {
  public:
    Region(Node* enter, Node* exit) : enter_(enter) {
        for (Node* node = enter->next(); node != exit; node = node->next()) {
            top_.push_back(node);
            for_each_node_of(*node, [this](Node& inner) {
                nodes_.push_back(&inner);
                inside_.insert(&inner);
            });
        }
    }

    // Detaches the tensors that the nodes read from outside. Returns false if the region must stay
    // as it is.
    bool detach() {
        if (!collect()) return false;
        for (auto& [outer, inner] : twins_) {
            inner = detached(outer, enter_);
            if (inner == nullptr) return false;
        }
        for (const auto& [outer, inner] : twins_) {
            for (const Use& use : std::vector(outer->uses()))
                if (inside_.count(use.user) > 0) use.user->replaceInput(use.offset, inner);
            for (Node* node : nodes_)
                for (Block* block : node->blocks())
                    for (size_t o = 0; o < block->outputs().size(); ++o)
                        if (block->outputs()[o] == outer) block->replaceOutput(o, inner);
        }
        give_back();
        return true;
    }

  private:
    // Finds the tensors that the nodes read from outside. Returns false if a node begins or ends
    // another region without gradients.
    bool collect() {
        std::set<const Value*> seen;
        for (Node* node : nodes_) {
            if (node->kind() == prim::Enter || node->kind() == prim::Exit ||
                node->kind() == kSetGradEnabled)
                return false;
            std::vector<Value*> read(node->inputs().begin(), node->inputs().end());
            for (Block* block : node->blocks())
                read.insert(read.end(), block->outputs().begin(), block->outputs().end());
            for (Value* value : read) {
                if (is_inside(*value) || holds_no_tensor(*value)) continue;
                if (seen.insert(value).second) twins_.emplace_back(value, nullptr);
            }
        }
        return true;
    }

    [[nodiscard]] bool is_inside(const Value& value) const {
        const Node* const maker = value.node();
        if (inside_.count(maker) > 0) return true;
        // The inputs of a block are made by its prim::Param node.
        return maker->kind() == prim::Param && maker->owningBlock()->owningNode() != nullptr &&
               inside_.count(maker->owningBlock()->owningNode()) > 0;
    }

    // Lets nodes after the region use the original tensor, with its gradient, in place of a tensor
    // that the region has written in place.
    void give_back() {
        std::map<const Value*, Value*> outer_of;
        for (const auto& [outer, inner] : twins_) outer_of[inner] = outer;
        for (Node* node : top_)
            for (size_t o = 0; o < node->outputs().size(); ++o) {
                Value* const written = overwritten_as(*node, o);
                const auto found = outer_of.find(written);
                if (written == nullptr || found == outer_of.end()) continue;
                outer_of[node->output(o)] = found->second;
                for (const Use& use : std::vector(node->output(o)->uses()))
                    if (inside_.count(use.user) == 0)
                        use.user->replaceInput(use.offset, found->second);
            }
    }

    Node* enter_;
    std::vector<Node*> top_;
    std::vector<Node*> nodes_;      // including nodes in blocks
    std::set<const Node*> inside_;  // the same nodes
    // The values that are read from outside, in the order in which they are read, each with its
    // detached twin.
    std::vector<std::pair<Value*, Value*>> twins_;
};

// Removes the calls that enter and leave a region whose tensors have been detached.
void remove_guard(Node* enter, Node* exit) {
    Value* const guard = enter->input(0);
    exit->destroy();
    if (enter->kind() == kSetGradEnabled) return enter->destroy();
    enter->destroy();
    for (const Use& use : std::vector(guard->uses()))
        if (use.user->kind() == prim::SetAttr) use.user->destroy();
    if (!guard->hasUses() && guard->node()->kind() == prim::CreateObject) guard->node()->destroy();
}

// Returns the node that ends the region that ENTER begins; null if ENTER's block has no such node.
Node* end_of(Node* enter) {
    const bool is_switch = enter->kind() == kSetGradEnabled;
    for (Node* node = enter->next(); node->kind() != prim::Return; node = node->next())
        if (is_switch ? switches(*node, true) : guard_of(*node, prim::Exit) == enter->input(0))
            return node;
    return nullptr;
}

void detach_in(Block& block) {
    std::vector<Node*> enters;
    for (Node* node : block.nodes()) {
        for (Block* inner : node->blocks()) detach_in(*inner);
        if (guard_of(*node, prim::Enter) != nullptr || switches(*node, false))
            enters.push_back(node);
    }
    // Inner regions come last in the list, so each is removed before the region around it.
    for (auto enter = enters.rbegin(); enter != enters.rend(); ++enter) {
        Node* const exit = end_of(*enter);
        if (exit != nullptr && Region(*enter, exit).detach()) remove_guard(*enter, exit);
    }
}

}  // namespace

void detach_without_gradients(Graph& graph) {
    detach_in(*graph.block());
}

Value* detached(Value* value, Node* before) {
    Graph& graph = *value->owningGraph();
    const WithInsertPoint here(before);
    if (is_tensor(*value)) return graph.insert(aten::detach, {value});
    if (value->node()->kind() != prim::ListConstruct || value->node()->inputs().empty())
        return nullptr;
    std::vector<Value*> elements;
    for (Value* element : value->node()->inputs()) {
        if (!is_tensor(*element)) return nullptr;
        elements.push_back(graph.insert(aten::detach, {element}));
    }
    const c10::TypePtr element = value->type()->expectRef<c10::ListType>().getElementType();
    return graph.insertNode(graph.createList(element, elements))->output();
}

}  // namespace dslaunch::graph
