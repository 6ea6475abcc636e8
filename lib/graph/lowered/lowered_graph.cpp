#include "graph/lowered/lowered_graph.h"

#include <fmt/core.h>
#include <torch/csrc/jit/ir/ir.h>

#include "base/text.h"

namespace dslaunch::graph {

using torch::jit::Node;

std::string module_path(const Node& node) {
    // Nodes of exported programs are called by nobody; their scope is the module's path.
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

}  // namespace dslaunch::graph
