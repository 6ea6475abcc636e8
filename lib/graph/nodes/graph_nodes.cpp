#include "graph/nodes/graph_nodes.h"

#include <torch/csrc/jit/ir/constants.h>

#include <set>

namespace dslaunch::graph {

namespace {

bool is_write(const c10::AliasInfo* alias) {
    return alias != nullptr && alias->isWrite();
}

}  // namespace

bool is_one_of(const Node& node, std::initializer_list<std::string_view> names) {
    return std::ranges::find(names, std::string_view(node.kind().toQualString())) != names.end();
}

std::optional<size_t> argument_at(const Node& node, const char* name) {
    const c10::FunctionSchema* const schema = node.maybeSchema();
    const auto index = schema == nullptr ? std::nullopt : schema->argumentIndexWithName(name);
    return index ? std::optional(static_cast<size_t>(*index)) : std::nullopt;
}

std::optional<double> constant_number(const Node& node, const char* name) {
    const auto index = argument_at(node, name);
    const auto value = index ? torch::jit::toIValue(node.input(*index)) : std::nullopt;
    if (!value) return std::nullopt;
    if (value->isDouble()) return value->toDouble();
    if (value->isInt()) return static_cast<double>(value->toInt());
    if (value->isBool()) return value->toBool() ? 1 : 0;
    return std::nullopt;
}

Value* insert_like(const Node& like, Symbol kind, const std::vector<NamedValue>& arguments) {
    Value* const made = const_cast<Node&>(like).owningGraph()->insert(kind, arguments);
    made->node()->copyMetadata(const_cast<Node*>(&like));
    return made;
}

void pair_twins(const Block& from, Block& to, Twins& twins) {
    for (size_t i = 0; i < from.inputs().size(); ++i)
        twins.values[from.inputs()[i]] = to.inputs()[i];
    auto it = to.nodes().begin();
    for (const Node* node : from.nodes()) {
        Node* const twin = *it++;
        twins.nodes[node] = twin;
        for (size_t o = 0; o < node->outputs().size(); ++o)
            twins.values[node->output(o)] = twin->output(o);
        for (size_t b = 0; b < node->blocks().size(); ++b)
            pair_twins(*node->blocks()[b], *twin->blocks()[b], twins);
    }
}

bool may_hold_tensors(const c10::Type& type) {
    using Kind = c10::TypeKind;
    static const std::set<Kind> plain{Kind::IntType,  Kind::FloatType,    Kind::ComplexType,
                                      Kind::BoolType, Kind::NumberType,   Kind::StringType,
                                      Kind::NoneType, Kind::DeviceObjType};
    static const std::set<Kind> containers{Kind::ListType, Kind::TupleType, Kind::DictType,
                                           Kind::OptionalType, Kind::UnionType};
    if (plain.count(type.kind()) > 0) return false;
    return containers.count(type.kind()) == 0 ||
           std::ranges::any_of(type.containedTypes(),
                               [](const c10::TypePtr& inner) { return may_hold_tensors(*inner); });
}

std::vector<size_t> written_inputs(const Node& node) {
    std::vector<size_t> written;
    const c10::FunctionSchema* const schema = node.maybeSchema();
    if (schema == nullptr) return written;
    for (size_t i = 0; i < std::min(node.inputs().size(), schema->arguments().size()); ++i)
        if (is_write(schema->arguments()[i].alias_info())) written.push_back(i);
    return written;
}

Value* overwritten_as(const Node& node, size_t output) {
    const c10::FunctionSchema* const schema = node.maybeSchema();
    if (schema == nullptr || output >= schema->returns().size()) return nullptr;
    const c10::AliasInfo* const given = schema->returns()[output].alias_info();
    if (!is_write(given)) return nullptr;
    for (const size_t i : written_inputs(node))
        if (schema->arguments()[i].alias_info()->beforeSets() == given->beforeSets())
            return const_cast<Value*>(node.input(i));
    return nullptr;
}

const Value* before_writes(const Value* value) {
    return follow_back(value, [](const Value* at) -> const Value* {
        return overwritten_as(*at->node(), at->offset());
    });
}

}  // namespace dslaunch::graph
