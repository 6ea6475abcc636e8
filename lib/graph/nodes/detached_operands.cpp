#include "graph/nodes/detached_operands.h"

#include <utility>

#include "graph/nodes/graph_nodes.h"

namespace dslaunch::graph {

void DetachedOperands::detach(std::vector<Value*>& values) {
    for (Value*& value : values) {
        if (value->type()->kind() != c10::TypeKind::TensorType) continue;
        Value* const without = value->owningGraph()->insert(aten::detach, {value});
        before_[without] = std::exchange(value, without);
    }
}

Value* DetachedOperands::given_back(Value* output) const {
    const auto found = before_.find(before_writes(output));
    return found == before_.end() ? output : found->second;
}

}  // namespace dslaunch::graph
