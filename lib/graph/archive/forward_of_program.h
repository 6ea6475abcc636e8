// Converts the graph of an exported program to a TorchScript graph: the same operators in the same
// order, with the module's parameters and buffers read by name. Data path: storage/exported ->
// [here] -> exported_archive.cpp. No shared state.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <memory>
#include <string>

#include "graph/nodes/names.h"
#include "storage/exported/program.h"

namespace dslaunch::graph {

// The forward that was made of a program.
struct ForwardOfProgram {
    // The inputs are the module, then forward's arguments by name. The output is forward's output.
    std::shared_ptr<Graph> graph;
    // The number of dropout and batch normalization nodes that the export fixed to evaluation;
    // training does not switch them on.
    int fixed_to_evaluation = 0;
};

// Returns the forward of PROGRAM. MODULE has PROGRAM's parameters and buffers under their names,
// and an attribute `training`. CONSTANTS: PROGRAM's tensor constants by name. Throws Error{kInput},
// naming the node, module and source line, for an operator that LibTorch does not have, for control
// flow or autocast that the graph cannot express, and for arguments whose type does not match the
// operator.
[[nodiscard]] ForwardOfProgram forward_of_program(
    const storage::ExportedProgram& program, const Module& module,
    const std::map<std::string, at::Tensor>& constants);

}  // namespace dslaunch::graph
