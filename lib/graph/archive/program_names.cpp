#include "graph/archive/program_names.h"

#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/ir/constants.h>

#include <optional>
#include <variant>

#include "base/error.h"
#include "base/text.h"
#include "graph/archive/program_values.h"
#include "graph/nodes/graph_nodes.h"

namespace dslaunch::graph {

using storage::ExportedInput;
using storage::ExportedNode;
using storage::ExportedProgram;
using storage::ExportedValue;

void ProgramNames::add_inputs(const ExportedProgram& program,
                              const std::map<std::string, at::Tensor>& constants) {
    for (const ExportedInput& input : program.inputs) {
        switch (input.kind) {
            case ExportedInput::Kind::kUser:
                add_argument(input);
                break;
            case ExportedInput::Kind::kParameter:
            case ExportedInput::Kind::kBuffer:
                held_[input.value] = input.target;
                break;
            case ExportedInput::Kind::kConstant: {
                const auto found = constants.find(input.target);
                if (found == constants.end())
                    fail(ExitCode::kInput, "the constant `{}` is not in the archive",
                         printable(input.target));
                values_[input.value] = graph_.insertConstant(found->second);
                break;
            }
        }
    }
    for (const auto& [value, target] : held_) {
        Value* owner = self_;
        for (const std::string& part : split(target, '.'))
            owner = graph_.insertGetAttr(owner, part);
        values_[value] = owner;
    }
}

void ProgramNames::add_argument(const ExportedInput& input) {
    if (input.value.empty()) return;  // a fixed argument that the graph ignores
    if (input.fixed) {
        values_[input.value] = constant(constant_of(*input.fixed).value_or(IValue()));
        return;
    }
    if (!input.is_tensor)
        fail(ExitCode::kInput,
             "forward's argument `{}` is a number that may change between calls, but data supply "
             "only tensors; export the model with a tensor, or with a fixed number",
             printable(input.value));
    values_[input.value] = graph_.addInput(input.value);
}

Value* ProgramNames::find(const std::string& name) const {
    const auto found = values_.find(name);
    if (found == values_.end())
        fail(ExitCode::kInput, "the value `{}` is used before any node computes it",
             printable(name));
    return found->second;
}

Value* ProgramNames::none() {
    return graph_.insertNode(graph_.createNone())->output();
}

Value* ProgramNames::constant(const IValue& value) {
    return value.isNone() ? none() : graph_.insertConstant(value);
}

template <typename Symbols>
Value* ProgramNames::list_of_numbers(const Symbols& symbols, const c10::TypePtr& element) {
    std::vector<Value*> values;
    for (const auto& symbol : symbols)
        values.push_back(symbol.name.empty() ? graph_.insertConstant(symbol.number)
                                             : find(symbol.name));
    return graph_.insertNode(graph_.createList(element, values))->output();
}

Value* ProgramNames::list_of_tensors(const std::vector<storage::TensorName>& names, bool optional) {
    std::vector<Value*> values;
    for (const storage::TensorName& tensor : names)
        values.push_back(tensor.name.empty() ? none() : find(tensor.name));
    const c10::TypePtr element =
        optional ? c10::TypePtr(c10::OptionalType::ofTensor()) : c10::TensorType::get();
    return graph_.insertNode(graph_.createList(element, values))->output();
}

Value* ProgramNames::materialize(const ExportedValue& value, bool optional) {
    if (const std::optional<IValue> fixed = constant_of(value)) return constant(*fixed);
    if (const std::string name = name_of(value); !name.empty()) return find(name);
    if (const auto* sizes = std::get_if<std::vector<storage::SymInt>>(&value))
        return list_of_numbers(*sizes, c10::IntType::get());
    if (const auto* numbers = std::get_if<std::vector<storage::SymFloat>>(&value))
        return list_of_numbers(*numbers, c10::FloatType::get());
    if (const auto* tensors = std::get_if<std::vector<storage::TensorName>>(&value))
        return list_of_tensors(*tensors, optional);
    places_.refuse("one of its arguments is a graph, which is not supported for this operator");
}

void ProgramNames::bind(const ExportedValue& output, Value* result) {
    if (const auto* list = std::get_if<std::vector<storage::TensorName>>(&output)) {
        Node* unpacked = graph_.insertNode(graph_.createListUnpack(result, list->size()));
        for (size_t i = 0; i < list->size(); ++i) values_[(*list)[i].name] = unpacked->outputs()[i];
        return;
    }
    const std::string name = name_of(output);
    if (name.empty()) return;  // an output that the operator left out
    if (result->type()->kind() == c10::TypeKind::NumberType)
        result = graph_.insert(
            std::holds_alternative<storage::SymFloat>(output) ? aten::Float : aten::Int, {result});
    values_[name] = result;
}

std::vector<Value*> ProgramNames::operands(const ExportedNode& node, size_t first) {
    std::vector<Value*> values;
    for (size_t i = first; i < node.inputs.size(); ++i) {
        if (const auto* list =
                std::get_if<std::vector<storage::TensorName>>(&node.inputs[i].value)) {
            for (const storage::TensorName& tensor : *list) values.push_back(find(tensor.name));
        } else {
            values.push_back(materialize(node.inputs[i].value));
        }
    }
    return values;
}

void ProgramNames::bind_all(const ExportedNode& node, const std::vector<Value*>& outputs) {
    size_t next = 0;
    const auto take = [&](const std::string& name) {
        if (next >= outputs.size())
            places_.refuse("its graph returns fewer values than the operator");
        if (!name.empty()) values_[name] = outputs[next];
        ++next;
    };
    for (const ExportedValue& output : node.outputs) {
        if (const auto* list = std::get_if<std::vector<storage::TensorName>>(&output)) {
            for (const storage::TensorName& tensor : *list) take(tensor.name);
        } else {
            take(name_of(output));
        }
    }
}

std::optional<std::string> ProgramNames::value_of(const std::string& target) const {
    for (const auto& [value, owner] : held_)
        if (owner == target) return value;
    return std::nullopt;
}

}  // namespace dslaunch::graph
