#include "graph/lower/forward_values.h"

#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/passes/dead_code_elimination.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "graph/nodes/graph_nodes.h"

namespace dslaunch::graph {

namespace {

struct Item {
    std::string name;
    Value* name_value = nullptr;
    Value* value = nullptr;
};
using Items = std::vector<Item>;  // in the order in which the names were added

// Returns the text of VALUE if it is a constant text of its graph; otherwise nothing.
std::optional<std::string> constant_text(const Value* value) {
    const auto constant = torch::jit::toIValue(value);
    if (!constant || !constant->isString()) return std::nullopt;
    return constant->toStringRef();
}

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

// Returns the items with which NODE makes a dict; nothing if NODE makes no dict, or if a key is not
// a constant text.
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

// One dict, and the replacements of its uses, in the order of the uses.
class Fold {
  public:
    Fold(Graph& graph, Node& maker, Items items)
        : graph_(graph), maker_(maker), items_(std::move(items)) {}

    // Plans the replacements. Returns false if a use needs the dict itself.
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
            const WithInsertPoint here(asked);
            asked->output()->replaceAllUsesWith(graph_.insertConstant(holds));
        }
        if (leaves_) {
            const WithInsertPoint at_end(graph_.return_node());
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

void fold_dicts(Graph& graph) {
    const std::vector<Node*> nodes(graph.nodes().begin(), graph.nodes().end());
    std::vector<Node*> makers;  // folding a dict destroys no other maker
    std::ranges::copy_if(nodes, std::back_inserter(makers),
                         [](const Node* node) { return items_made_by(*node).has_value(); });
    for (Node* node : makers) {
        std::optional<Items> items = items_made_by(*node);
        Fold fold(graph, *node, std::move(*items));
        if (fold.plan()) fold.apply();
    }
}

namespace {

// Returns the key if NODE reads one value of DICT by a constant key.
std::optional<std::string> key_read(const Node& node, const Value* dict) {
    if (node.kind() != aten::__getitem__ || node.input(0) != dict) return std::nullopt;
    return constant_text(node.input(1));
}

struct NamedPart {
    std::string name;  // empty if it has no name
    Value* value = nullptr;
};

// Returns the values of a tuple. If no node of the graph makes the tuple from its values, adds a
// node that unpacks it.
std::vector<NamedPart> values_of_tuple(Graph& graph, Value* tuple) {
    const auto type = tuple->type()->cast<c10::TupleType>();
    std::vector<Value*> values;
    if (tuple->node()->kind() == prim::TupleConstruct) {
        values = {tuple->node()->inputs().begin(), tuple->node()->inputs().end()};
    } else {
        const WithInsertPoint at_end(graph.return_node());
        Node* unpack = graph.insertNode(graph.createTupleUnpack(tuple));
        values = {unpack->outputs().begin(), unpack->outputs().end()};
    }
    std::vector<NamedPart> named;
    for (size_t i = 0; i < values.size(); ++i) {
        const bool has_name = type->schema() != nullptr;
        named.push_back({has_name ? type->schema()->arguments()[i].name() : "", values[i]});
    }
    return named;
}

// Returns the values of a dict; empty if no node of this graph makes it, or if a name is not a
// constant.
std::vector<NamedPart> values_of_dict(Value* dict) {
    if (dict->node()->kind() != prim::DictConstruct) return {};
    std::vector<NamedPart> named;
    const auto inputs = dict->node()->inputs();
    for (size_t i = 0; i + 1 < inputs.size(); i += 2) {
        const auto name = constant_text(inputs[i]);
        if (!name) return {};
        named.push_back({*name, inputs[i + 1]});
    }
    // Values that are added to the dict later count too.
    for (const Use& use : dict->uses()) {
        if (use.user->kind() != aten::_set_item || use.user->input(0) != dict) continue;
        const auto name = constant_text(use.user->input(1));
        if (!name || use.user->owningBlock() != dict->node()->owningBlock()) return {};
        std::erase_if(named, [&](const NamedPart& other) { return other.name == *name; });
        named.push_back({*name, use.user->input(2)});
    }
    return named;
}

std::string names_of(const std::vector<NamedPart>& values) {
    std::vector<std::string> names;
    for (const NamedPart& value : values)
        names.push_back(value.name.empty() ? value.value->type()->repr_str()
                                           : "`" + printable(value.name) + "`");
    return join(names, ", ");
}

const NamedPart* chosen_of(const std::vector<NamedPart>& values, const std::string& wanted,
                           bool is_tuple) {
    for (const NamedPart& value : values)
        if (value.name == wanted) return &value;
    const bool has_names = !values.empty() && !values.front().name.empty();
    if (values.size() == 1 || (is_tuple && !has_names && !values.empty())) return &values.front();
    return nullptr;
}

}  // namespace

void split_dict_argument(LoweredGraph& lowered, size_t index, Value* value) {
    Graph& graph = *lowered.graph;
    const std::string argument = lowered.arguments[index];
    std::map<std::string, std::vector<Node*>> reads;
    for (const Use& use : value->uses()) {
        const auto key = key_read(*use.user, value);
        if (!key)
            fail(ExitCode::kInput,
                 "forward's argument `{}` is a dict of tensors, but {} does something other than "
                 "read a value by its name, which is not supported; pass the tensors to forward as "
                 "separate arguments",
                 printable(argument), describe_node(*use.user));
        reads[*key].push_back(use.user);
    }
    if (reads.empty())
        fail(ExitCode::kInput,
             "forward's argument `{}` is a dict of tensors, but forward reads nothing from it",
             printable(argument));
    const auto at = static_cast<std::ptrdiff_t>(index);
    lowered.arguments.erase(lowered.arguments.begin() + at);
    lowered.argument_types.erase(lowered.argument_types.begin() + at);
    const size_t place = value->offset();
    size_t next = 0;
    for (const auto& [key, nodes] : reads) {
        Value* tensor = graph.insertInput(place + next);
        tensor->setType(c10::TensorType::get());
        for (Node* node : nodes) {
            node->output()->replaceAllUsesWith(tensor);
            node->destroy();
        }
        const auto before = at + static_cast<std::ptrdiff_t>(next++);
        lowered.arguments.insert(lowered.arguments.begin() + before, key);
        lowered.argument_types.insert(lowered.argument_types.begin() + before,
                                      c10::TensorType::get());
    }
    graph.eraseInput(place + next);
}

void choose_output(const config::LossConfig& loss, LoweredGraph& lowered) {
    Graph& graph = *lowered.graph;
    Value* output = graph.outputs()[0];
    if (is_tensor(*output)) return;
    const bool is_loss = loss.kind == config::LossKind::kModel;
    const std::string wanted = is_loss ? "loss" : "logits";
    const bool is_tuple = output->type()->kind() == c10::TypeKind::TupleType;
    const bool is_dict = output->type()->kind() == c10::TypeKind::DictType;
    Value* chosen = output;
    if (is_tuple || is_dict) {
        const std::vector<NamedPart> values =
            is_tuple ? values_of_tuple(graph, output) : values_of_dict(output);
        const NamedPart* found = chosen_of(values, wanted, is_tuple);
        if (found == nullptr && !values.empty())
            fail(ExitCode::kInput,
                 "forward returns {}, but none of them is named `{}`; return only the {}, or give "
                 "it this name",
                 names_of(values), wanted, is_loss ? "loss" : "model's output");
        if (found != nullptr) {
            chosen = found->value;
            lowered.output_choice =
                found->name.empty()
                    ? fmt::format("the first of the {} values that forward returns", values.size())
                    : fmt::format("the value `{}` that forward returns", printable(found->name));
        } else if (is_dict) {
            const WithInsertPoint at_end(graph.return_node());
            chosen = graph.insert(aten::__getitem__, {output, wanted});
            lowered.output_choice = fmt::format("the value `{}` that forward returns", wanted);
        }
    }
    if (chosen->type()->kind() == c10::TypeKind::OptionalType) {
        const WithInsertPoint at_end(graph.return_node());
        chosen = graph.insert(aten::_unwrap_optional, {chosen});
    }
    if (chosen == output || !is_tensor(*chosen)) return;  // append_loss() reports it
    graph.block()->replaceOutput(0, chosen);
    torch::jit::EliminateDeadCode(lowered.graph);
}

}  // namespace dslaunch::graph
