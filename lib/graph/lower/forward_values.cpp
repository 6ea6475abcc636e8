#include "graph/lower/forward_values.h"

#include <ATen/core/interned_strings.h>
#include <ATen/core/jit_type.h>
#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/passes/dead_code_elimination.h>

#include <algorithm>
#include <map>
#include <optional>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "graph/lower/dict_values.h"
#include "graph/nodes/graph_nodes.h"

namespace dslaunch::graph {

namespace aten = c10::aten;
namespace prim = c10::prim;
using torch::jit::Graph;
using torch::jit::Node;
using torch::jit::Value;

namespace {

// The key of NODE if it reads one value of DICT.
std::optional<std::string> key_read(const Node& node, const Value* dict) {
    if (node.kind() != aten::__getitem__ || node.input(0) != dict) return std::nullopt;
    return constant_text(node.input(1));
}

struct NamedValue {
    std::string name;  // empty: it has none
    Value* value = nullptr;
};

// The values of a tuple; unpacks it where no node of this block has made it.
std::vector<NamedValue> values_of_tuple(Graph& graph, Value* tuple) {
    const auto type = tuple->type()->cast<c10::TupleType>();
    std::vector<Value*> values;
    if (tuple->node()->kind() == prim::TupleConstruct) {
        values = {tuple->node()->inputs().begin(), tuple->node()->inputs().end()};
    } else {
        const torch::jit::WithInsertPoint at_end(graph.return_node());
        Node* unpack = graph.insertNode(graph.createTupleUnpack(tuple));
        values = {unpack->outputs().begin(), unpack->outputs().end()};
    }
    std::vector<NamedValue> named;
    for (size_t i = 0; i < values.size(); ++i) {
        const bool has_name = type->schema() != nullptr;
        named.push_back({has_name ? type->schema()->arguments()[i].name() : "", values[i]});
    }
    return named;
}

// The values of a dict that a node of this graph has made; empty: none has, or not by such names.
std::vector<NamedValue> values_of_dict(Value* dict) {
    if (dict->node()->kind() != prim::DictConstruct) return {};
    std::vector<NamedValue> named;
    const auto inputs = dict->node()->inputs();
    for (size_t i = 0; i + 1 < inputs.size(); i += 2) {
        const auto name = constant_text(inputs[i]);
        if (!name) return {};
        named.push_back({*name, inputs[i + 1]});
    }
    // A value that is put into it later counts as well.
    for (const torch::jit::Use& use : dict->uses()) {
        if (use.user->kind() != aten::_set_item || use.user->input(0) != dict) continue;
        const auto name = constant_text(use.user->input(1));
        if (!name || use.user->owningBlock() != dict->node()->owningBlock()) return {};
        std::erase_if(named, [&](const NamedValue& other) { return other.name == *name; });
        named.push_back({*name, use.user->input(2)});
    }
    return named;
}

std::string names_of(const std::vector<NamedValue>& values) {
    std::vector<std::string> names;
    for (const NamedValue& value : values)
        names.push_back(value.name.empty() ? value.value->type()->repr_str()
                                           : "`" + printable(value.name) + "`");
    return join(names, ", ");
}

const NamedValue* chosen_of(const std::vector<NamedValue>& values, const std::string& wanted,
                            bool is_tuple) {
    for (const NamedValue& value : values)
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
    for (const torch::jit::Use& use : value->uses()) {
        const auto key = key_read(*use.user, value);
        if (!key)
            fail(ExitCode::kInput,
                 "forward's argument `{}` is a dict of tensors, and {} does something else with it "
                 "than to read a value by its name: give forward the tensors one by one",
                 printable(argument), describe_node(*use.user));
        reads[*key].push_back(use.user);
    }
    if (reads.empty())
        fail(ExitCode::kInput, "forward reads nothing from its argument `{}`, a dict of tensors",
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
        const std::vector<NamedValue> values =
            is_tuple ? values_of_tuple(graph, output) : values_of_dict(output);
        const NamedValue* found = chosen_of(values, wanted, is_tuple);
        if (found == nullptr && !values.empty())
            fail(ExitCode::kInput,
                 "forward returns {}, and none of them is `{}`: return the {} alone, or under this "
                 "name",
                 names_of(values), wanted, is_loss ? "loss" : "model's output");
        if (found != nullptr) {
            chosen = found->value;
            lowered.output_choice =
                found->name.empty()
                    ? fmt::format("the first of the {} values that forward returns", values.size())
                    : fmt::format("value `{}` of what forward returns", printable(found->name));
        } else if (is_dict) {
            const torch::jit::WithInsertPoint at_end(graph.return_node());
            chosen = graph.insert(aten::__getitem__, {output, wanted});
            lowered.output_choice = fmt::format("value `{}` of what forward returns", wanted);
        }
    }
    if (chosen->type()->kind() == c10::TypeKind::OptionalType) {
        const torch::jit::WithInsertPoint at_end(graph.return_node());
        chosen = graph.insert(aten::_unwrap_optional, {chosen});
    }
    if (chosen == output || !is_tensor(*chosen)) return;  // the loss says what it cannot take
    graph.block()->replaceOutput(0, chosen);
    torch::jit::EliminateDeadCode(lowered.graph);
}

}  // namespace dslaunch::graph
