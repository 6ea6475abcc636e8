// The integer arguments of forward that index a table, and the table's length, so that a token
// outside the vocabulary is found in the data before the first step, not by a crash inside an
// embedding.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "graph/archive/model.h"
#include "graph/lowered/lowered_graph.h"

namespace dslaunch::graph {

struct ArgumentLimit {
    std::string argument;
    std::string table;  // "wte.weight"
    int64_t rows = 0;   // valid values are 0 … rows - 1
};

// The arguments that an embedding at the graph's top level reads directly, each with its smallest
// table.
[[nodiscard]] std::vector<ArgumentLimit> argument_limits(const LoweredGraph& lowered,
                                                         const Model& model);

}  // namespace dslaunch::graph
