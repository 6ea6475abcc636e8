// Finds the places in a model's Python code that the nodes of an exported program come from: their
// modules and source lines. Nodes of the new graph get these places, and messages name them. Part
// of forward_of_program.cpp. One thread.
#pragma once

#include <torch/csrc/jit/frontend/source_range.h>
#include <torch/csrc/jit/ir/scope.h>

#include <map>
#include <string>
#include <utility>

#include "storage/exported/program.h"

namespace dslaunch::graph {

// The places of a program's nodes, and the node that is being converted.
class ProgramPlaces {
  public:
    ProgramPlaces();

    // Makes NODE the node that refuse() names; null: refuse() names no node. Returns the previous
    // node.
    const storage::ExportedNode* enter(const storage::ExportedNode* node) {
        return std::exchange(node_, node);
    }
    // Throws Error{kInput} with WHY, naming the node, its module and its source line.
    [[noreturn]] void refuse(const std::string& why) const;

    // Returns the scope of NODE, by which messages name its module. Nodes of the same module share
    // a scope.
    [[nodiscard]] torch::jit::ScopePtr scope_of(const storage::ExportedNode& node);
    // Returns the source line of NODE; an empty range if it is not known.
    [[nodiscard]] static torch::jit::SourceRange range_of(const storage::ExportedNode& node);

  private:
    const storage::ExportedNode* node_ = nullptr;
    torch::jit::ScopePtr root_scope_;
    std::map<std::string, torch::jit::ScopePtr> scopes_;  // by module path
};

}  // namespace dslaunch::graph
