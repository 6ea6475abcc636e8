#include "graph/lowered/index_limits.h"

#include <ATen/core/interned_strings.h>
#include <torch/csrc/jit/ir/ir.h>

#include <algorithm>

namespace dslaunch::graph {

std::vector<ArgumentLimit> argument_limits(const LoweredGraph& lowered, const Model& model) {
    std::vector<ArgumentLimit> limits;
    const torch::jit::Graph& graph = *lowered.graph;
    for (const torch::jit::Node* node : graph.nodes()) {
        if (node->kind() != c10::aten::embedding || node->inputs().size() < 2) continue;
        const torch::jit::Value* table = node->input(0);
        const torch::jit::Value* index = node->input(1);
        // Pairs that a loss of preferences makes rows of.
        if (index->node()->kind() == c10::aten::flatten) index = index->node()->input(0);
        if (table->node() != graph.param_node() || index->node() != graph.param_node()) continue;
        const bool is_argument =
            index->offset() >= lowered.first_argument() && index->offset() < lowered.first_state();
        const bool is_parameter = table->offset() >= lowered.first_parameter() &&
                                  table->offset() < lowered.first_buffer();
        if (!is_argument || !is_parameter) continue;
        const int parameter = lowered.parameters[table->offset() - lowered.first_parameter()];
        const ModelParameter& owner = model.parameters()[parameter];
        const std::string& argument = lowered.arguments[index->offset() - lowered.first_argument()];
        const auto known =
            std::find_if(limits.begin(), limits.end(),
                         [&](const ArgumentLimit& limit) { return limit.argument == argument; });
        if (known == limits.end()) {
            limits.push_back({argument, owner.name, owner.tensor.size(0)});
        } else if (owner.tensor.size(0) < known->rows) {
            *known = {argument, owner.name, owner.tensor.size(0)};
        }
    }
    return limits;
}

}  // namespace dslaunch::graph
