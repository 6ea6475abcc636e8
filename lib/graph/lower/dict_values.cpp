#include "graph/lower/dict_values.h"

#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/ir/ir.h>

#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

namespace dslaunch::graph {

namespace aten = c10::aten;
namespace prim = c10::prim;
using torch::jit::Graph;
using torch::jit::Node;
using torch::jit::Use;
using torch::jit::Value;

namespace {

struct Item {
    std::string name;
    Value* name_value = nullptr;
    Value* value = nullptr;
};
using Items = std::vector<Item>;  // in the order in which the names came

Item* find_item(Items& items, const std::string& name) {
    const auto found = std::ranges::find(items, name, &Item::name);
    return found == items.end() ? nullptr : &*found;
}

void set_item(Items& items, Item item) {
    if (Item* const known = find_item(items, item.name)) {
        known->value = item.value;
    } else {
        items.push_back(std::move(item));
    }
}

// The values that the dict of NODE has when it is made; nothing: it makes none, or of other names.
std::optional<Items> items_made_by(const Node& node) {
    if (node.outputs().size() != 1 || node.output()->type()->kind() != c10::TypeKind::DictType)
        return std::nullopt;
    if (node.kind() == aten::dict && node.inputs().empty()) return Items{};
    if (node.kind() != prim::DictConstruct) return std::nullopt;
    Items items;
    for (size_t i = 0; i + 1 < node.inputs().size(); i += 2) {
        const auto name = constant_text(node.input(i));
        if (!name) return std::nullopt;
        set_item(items, {*name, node.input(i), node.input(i + 1)});
    }
    return items;
}

// One dict and what becomes of its uses, in their order.
class Fold {
  public:
    Fold(Graph& graph, Node& maker, Items items)
        : graph_(graph), maker_(maker), items_(std::move(items)) {}

    // False if some use keeps the dict.
    [[nodiscard]] bool plan() {
        std::vector<Use> uses = maker_.output()->uses();
        if (std::ranges::any_of(uses, [&](const Use& use) {
                return use.user->owningBlock() != maker_.owningBlock();
            }))
            return false;
        std::ranges::stable_sort(
            uses, [](const Use& a, const Use& b) { return a.user->isBefore(b.user); });
        return std::ranges::all_of(uses, [&](const Use& use) { return take(use); });
    }

    void apply() {
        for (const auto& [read, value] : reads_) read->output()->replaceAllUsesWith(value);
        for (const auto& [asked, holds] : asked_) {
            const torch::jit::WithInsertPoint here(asked);
            asked->output()->replaceAllUsesWith(graph_.insertConstant(holds));
        }
        if (leaves_) {
            const torch::jit::WithInsertPoint at_end(graph_.return_node());
            const auto type = maker_.output()->type()->expect<c10::DictType>();
            std::vector<Value*> names, values;
            for (const Item& item : items_) {
                names.push_back(item.name_value);
                values.push_back(item.value);
            }
            Node* const made = graph_.insertNode(
                graph_.createDict(type->getKeyType(), type->getValueType(), names, values));
            made->output()->setType(type);
            for (const size_t index : *leaves_)
                graph_.return_node()->replaceInput(index, made->output());
        }
        for (const auto& [read, value] : reads_) read->destroy();
        for (const auto& [asked, holds] : asked_) asked->destroy();
        for (Node* set : sets_) set->destroy();
        maker_.destroy();
    }

  private:
    bool take(const Use& use) {
        Node* const user = use.user;
        if (user->kind() == prim::Return) {
            if (!leaves_) leaves_.emplace();
            leaves_->push_back(use.offset);
            return true;
        }
        if (use.offset != 0 || user->inputs().size() < 2) return false;
        const auto name = constant_text(user->input(1));
        if (!name) return false;
        Item* const known = find_item(items_, *name);
        if (user->kind() == aten::_set_item) {
            set_item(items_, {*name, user->input(1), user->input(2)});
            sets_.push_back(user);
        } else if (user->kind() == aten::__getitem__ && known != nullptr) {
            reads_.emplace_back(user, known->value);
        } else if (user->kind() == aten::__contains__) {
            asked_.emplace_back(user, known != nullptr);
        } else {
            return false;
        }
        return true;
    }

    Graph& graph_;
    Node& maker_;
    Items items_;
    std::vector<std::pair<Node*, Value*>> reads_;
    std::vector<std::pair<Node*, bool>> asked_;
    std::vector<Node*> sets_;
    std::optional<std::vector<size_t>> leaves_;  // outputs of the graph
};

}  // namespace

std::optional<std::string> constant_text(const Value* value) {
    const auto constant = torch::jit::toIValue(value);
    if (!constant || !constant->isString()) return std::nullopt;
    return constant->toStringRef();
}

void fold_dicts(Graph& graph) {
    const std::vector<Node*> nodes(graph.nodes().begin(), graph.nodes().end());
    std::vector<Node*> makers;  // none is destroyed by another's fold
    std::ranges::copy_if(nodes, std::back_inserter(makers),
                         [](const Node* node) { return items_made_by(*node).has_value(); });
    for (Node* node : makers) {
        std::optional<Items> items = items_made_by(*node);
        Fold fold(graph, *node, std::move(*items));
        if (fold.plan()) fold.apply();
    }
}

}  // namespace dslaunch::graph
