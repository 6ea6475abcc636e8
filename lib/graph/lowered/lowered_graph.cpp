#include "graph/lowered/lowered_graph.h"

#include <fmt/core.h>
#include <torch/csrc/jit/ir/ir.h>

#include <algorithm>

#include "base/text.h"
#include "graph/archive/model.h"

namespace dslaunch::graph {

namespace {

// Returns true if INDEX is made from a running number: from arange, from cumsum, or from a buffer
// of positions.
bool is_running_number(const Value* index, const LoweredGraph& lowered, const Model& model) {
    for (;;) {
        const Node* const node = index->node();
        if (node == lowered.graph->param_node()) {
            if (index->offset() < lowered.first_buffer()) return false;
            const int buffer = lowered.buffers[index->offset() - lowered.first_buffer()];
            return model.buffers()[buffer].name.find("position") != std::string::npos;
        }
        if (node->kind() == aten::arange || node->kind() == aten::cumsum) return true;
        if (node->inputs().empty()) return false;
        index = node->input(0);
    }
}

}  // namespace

std::string module_path(const Node& node) {
    // Nodes of exported programs have no call stack; their scope is the module's path.
    if (!node.callstack()) return node.scopeName();
    std::vector<std::string> parts;
    for (const auto& entry : (*node.callstack())->vec()) {
        const auto& instance = std::get<2>(entry);
        if (instance.has_value() && instance->instance_name() != "SELF")
            parts.push_back(instance->instance_name());
    }
    return join(parts, ".");
}

std::string describe_node(const Node& node) {
    const std::string path = module_path(node);
    std::string where = path.empty() ? "the model's forward" : path;
    if (const auto line = node.sourceRange().file_line_col())
        where += fmt::format(" ({}:{})", std::get<0>(*line), std::get<1>(*line));
    return fmt::format("{} in {}", node.kind().toQualString(), where);
}

std::vector<ArgumentLimit> argument_limits(const LoweredGraph& lowered, const Model& model) {
    std::vector<ArgumentLimit> limits;
    const Graph& graph = *lowered.graph;
    for (const Node* node : graph.nodes()) {
        if (node->kind() != aten::embedding || node->inputs().size() < 2) continue;
        const Value* table = node->input(0);
        const Value* index = node->input(1);
        // For a preference loss, pairs were reshaped to rows first.
        if (index->node()->kind() == aten::flatten) index = index->node()->input(0);
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

std::optional<PositionTable> position_table(const LoweredGraph& lowered, const Model& model) {
    std::optional<PositionTable> smallest;
    const Graph& graph = *lowered.graph;
    for (const Node* node : graph.nodes()) {
        if (node->kind() != aten::embedding || node->inputs().size() < 2) continue;
        const Value* const table = node->input(0);
        if (table->node() != graph.param_node() || table->offset() < lowered.first_parameter() ||
            table->offset() >= lowered.first_buffer())
            continue;
        if (!is_running_number(node->input(1), lowered, model)) continue;
        const int parameter = lowered.parameters[table->offset() - lowered.first_parameter()];
        const ModelParameter& owner = model.parameters()[parameter];
        const int64_t rows = owner.tensor.size(0);
        if (!smallest || rows < smallest->rows) smallest = PositionTable{owner.name, rows};
    }
    return smallest;
}

torch::jit::Value* add_parameter_input(LoweredGraph& lowered, int parameter) {
    torch::jit::Value* const input = lowered.graph->insertInput(lowered.first_buffer());
    lowered.parameters.push_back(parameter);
    input->setType(c10::TensorType::get());
    return input;
}

torch::jit::Value* add_buffer_input(LoweredGraph& lowered, int buffer) {
    torch::jit::Value* const input =
        lowered.graph->insertInput(lowered.first_buffer() + lowered.buffers.size());
    lowered.buffers.push_back(buffer);
    input->setType(c10::TensorType::get());
    return input;
}

}  // namespace dslaunch::graph
