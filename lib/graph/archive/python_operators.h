// Operators that Python libraries define and that are known here: as functions of TorchScript,
// which every PyTorch can load, and as operators of our own, which replace calls of those functions
// where a graph is run. Used by forward_of_program.h and lower.h. Any thread.
#pragma once

#include <string_view>

#include "graph/nodes/names.h"

namespace dslaunch::graph {

// Returns the function of UNIT for TARGET ("torch.ops.transformers.grouped_mm_fallback.default"),
// whose arguments are the operator's in order; defined at its first use. Null: TARGET is none that
// is known.
[[nodiscard]] Function* function_of_python_operator(CompilationUnit& unit, std::string_view target);

// Turns calls of such functions in GRAPH into operators, as dslaunch::grouped_mm: rows of `input`
// [S, in], sorted by expert, times `weight` [experts, in, out] gives [S, out]; `offs` has the end
// of each expert's rows. Rows after the last end are zeros.
void replace_python_calls(Graph& graph);

}  // namespace dslaunch::graph
