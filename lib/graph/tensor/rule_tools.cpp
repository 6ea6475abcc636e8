#include "graph/tensor/rule_tools.h"

#include <torch/csrc/jit/ir/constants.h>

#include <string>

namespace dslaunch::graph {

TensorPlacement moved_shard(const TensorPlacement& like, int64_t dim) {
    TensorPlacement placement = like;
    placement.shard.dim = dim;
    return placement;
}

bool is_none(const Value& value) {
    return value.type()->kind() == c10::TypeKind::NoneType;
}

int64_t dims_of(const FlowState& flow, const Value* value) {
    return static_cast<int64_t>(flow.graph().sizes(value).size());
}

std::optional<int64_t> dim_argument(const FlowState& flow, const Node& node, size_t index,
                                    int64_t dims) {
    const auto dim = flow.graph().integer(node.input(index));
    return dim ? std::optional((*dim + dims) % dims) : std::nullopt;
}

std::optional<std::vector<int64_t>> int_list(const FlowState& flow, const Value* value) {
    if (const auto constant = torch::jit::toIValue(value))
        return constant->isIntList() ? std::optional(constant->toIntVector()) : std::nullopt;
    if (value->node()->kind() != prim::ListConstruct) return std::nullopt;
    std::vector<int64_t> list;
    for (const Value* element : value->node()->inputs()) {
        const auto number = flow.graph().integer(element);
        if (!number) return std::nullopt;
        list.push_back(*number);
    }
    return list;
}

bool pass_copied(FlowState& flow, Node& node) {
    for (size_t i = 0; i < node.inputs().size(); ++i) flow.read_for_share(node, i);
    flow.place(node.output(), TensorPlacement::copied());
    return true;
}

bool split_parameter(FlowState& flow, Node& node, size_t index, const TensorPlacement& like) {
    const auto origin = flow.graph().origin_of(node.input(index));
    if (!origin)
        return flow.obstruct(node, like.parameter,
                             "combines a split tensor with " +
                                 flow.graph().describe(node.input(index)) + ", which is not split");
    TensorPlacement wanted = like;
    wanted.shard.dim = origin->dims.at(static_cast<size_t>(like.shard.dim));
    if (wanted.parameter < 0) wanted.parameter = origin->parameter;
    return flow.demand(
        node, {{origin->parameter, wanted}},
        fmt::format("needs {} to be split too", flow.graph().parameter_name(origin->parameter)));
}

}  // namespace dslaunch::graph
