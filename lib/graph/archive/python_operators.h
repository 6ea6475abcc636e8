// Supports operators that Python libraries define. In a graph, they become TorchScript functions,
// which every PyTorch can load. When the graph runs, operators of our own replace the calls of
// these functions. Used by forward_of_program.h and lower.h. Any thread.
#pragma once

#include <string_view>

#include "graph/nodes/names.h"

namespace dslaunch::graph {

// Returns the function in UNIT that replaces the operator TARGET
// ("torch.ops.transformers.grouped_mm_fallback.default"). It takes the operator's arguments in the
// same order, and is defined on first use. Returns null if TARGET is not known.
[[nodiscard]] Function* function_of_python_operator(CompilationUnit& unit, std::string_view target);

// Replaces calls of the functions above in GRAPH by our own operators. dslaunch::grouped_mm
// multiplies each expert's rows in `input`, [S, in], by the expert's matrix in `weight`, [experts,
// in, out]. The rows are sorted by expert, and `offs` contains the end of each expert's rows. The
// result is [S, out]; rows after the last end become zeros.
void replace_python_calls(Graph& graph);

}  // namespace dslaunch::graph
