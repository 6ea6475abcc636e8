#include "graph/archive/program_places.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdlib>

#include "base/error.h"
#include "base/text.h"

namespace dslaunch::graph {

using storage::ExportedNode;

ProgramPlaces::ProgramPlaces() : root_scope_(c10::make_intrusive<torch::jit::Scope>()) {}

void ProgramPlaces::refuse(const std::string& why) const {
    if (node_ == nullptr) fail(ExitCode::kInput, "{}", why);
    std::string where = node_->module_path.empty() ? "" : " in " + node_->module_path;
    if (!node_->source.empty()) where += fmt::format(" ({})", node_->source);
    fail(ExitCode::kInput, "{}{}: {}", printable(node_->target), printable(where), why);
}

torch::jit::ScopePtr ProgramPlaces::scope_of(const ExportedNode& node) {
    if (node.module_path.empty()) return root_scope_;
    auto& scope = scopes_[node.module_path];
    if (!scope) scope = root_scope_->push(Symbol::scope(node.module_path));
    return scope;
}

torch::jit::SourceRange ProgramPlaces::range_of(const ExportedNode& node) {
    const size_t colon = node.source.rfind(':');
    if (colon == std::string::npos) return {};
    const int line = std::max(1, std::atoi(node.source.c_str() + colon + 1));
    return {std::make_shared<torch::jit::Source>("\n", node.source.substr(0, colon),
                                                 static_cast<size_t>(line - 1)),
            0, 1};
}

}  // namespace dslaunch::graph
