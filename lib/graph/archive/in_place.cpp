#include "graph/archive/in_place.h"

#include <ATen/core/alias_info.h>
#include <ATen/core/function_schema.h>
#include <ATen/core/interned_strings.h>
#include <torch/csrc/jit/ir/ir.h>

#include <algorithm>
#include <utility>

namespace dslaunch::graph {

using torch::jit::Node;
using torch::jit::Value;

namespace {

bool is_write(const c10::AliasInfo* alias) {
    return alias != nullptr && alias->isWrite();
}

}  // namespace

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

void DetachedOperands::detach(std::vector<Value*>& values) {
    for (Value*& value : values) {
        if (value->type()->kind() != c10::TypeKind::TensorType) continue;
        Value* const without = value->owningGraph()->insert(c10::aten::detach, {value});
        before_[without] = std::exchange(value, without);
    }
}

Value* DetachedOperands::given_back(Value* output) const {
    const Value* first = output;
    while (const Value* const written = overwritten_as(*first->node(), first->offset()))
        first = written;
    const auto found = before_.find(first);
    return found == before_.end() ? output : found->second;
}

}  // namespace dslaunch::graph
