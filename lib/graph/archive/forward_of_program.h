// The graph of an exported program as a TorchScript graph: the same operators in the same order,
// with the module's parameters and buffers read by name. Data path: storage/exported -> [here] ->
// exported_archive.cpp. No shared state.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <memory>
#include <string>

#include "graph/nodes/names.h"
#include "storage/exported/program.h"

namespace dslaunch::graph {

struct ForwardOfProgram {
    // Inputs: the module, then the arguments of forward by name. Output: forward's.
    std::shared_ptr<Graph> graph;
    // Dropout or batch normalization that the export fixed to evaluation: training does not change
    // it.
    int fixed_to_evaluation = 0;
};

// Returns the forward of PROGRAM. MODULE has its parameters and buffers under their names, and an
// attribute `training`. CONSTANTS holds its tensor constants by name. Throws Error{kInput} naming
// node, module and source line for an operator that LibTorch lacks, control flow or autocast that
// the graph cannot hold, or arguments of another type than the operator's.
[[nodiscard]] ForwardOfProgram forward_of_program(
    const storage::ExportedProgram& program, const Module& module,
    const std::map<std::string, at::Tensor>& constants);

}  // namespace dslaunch::graph
