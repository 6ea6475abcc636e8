#include "graph/tensor/rule_tools.h"

#include <torch/csrc/jit/ir/constants.h>

#include <string>

namespace dslaunch::graph {

using torch::jit::Node;
using torch::jit::Value;

Placement copied_placement() {
    Placement placement;
    placement.kind = Placement::Kind::kCopied;
    return placement;
}

Placement moved_shard(const Placement& like, int64_t dim) {
    Placement placement = like;
    placement.shard.dim = dim;
    return placement;
}

bool is_none(const Value& value) {
    return value.type()->kind() == c10::TypeKind::NoneType;
}

int64_t dims_of(const PlacementFlow& flow, const Value* value) {
    return static_cast<int64_t>(flow.sizes(value).size());
}

std::optional<size_t> argument_at(const Node& node, const char* name) {
    const auto index = node.schema().argumentIndexWithName(name);
    if (!index) return std::nullopt;
    return static_cast<size_t>(*index);
}

std::optional<double> constant_number(const Node& node, const char* name) {
    const auto index = argument_at(node, name);
    if (!index) return std::nullopt;
    const auto value = torch::jit::toIValue(node.input(*index));
    if (!value) return std::nullopt;
    if (value->isDouble()) return value->toDouble();
    if (value->isInt()) return static_cast<double>(value->toInt());
    if (value->isBool()) return value->toBool() ? 1 : 0;
    return std::nullopt;
}

bool split_parameter(PlacementFlow& flow, Node& node, size_t index, const Placement& like) {
    const auto origin = flow.origin_of(node.input(index));
    if (!origin)
        return flow.obstruct(node, like.parameter,
                             "meets " + flow.describe(node.input(index)) + ", which is not split");
    Placement wanted = like;
    wanted.shard.dim = origin->dims.at(static_cast<size_t>(like.shard.dim));
    if (wanted.parameter < 0) wanted.parameter = origin->parameter;
    return flow.demand(node, {{origin->parameter, wanted}},
                       fmt::format("needs {} split too", flow.parameter_name(origin->parameter)));
}

}  // namespace dslaunch::graph
