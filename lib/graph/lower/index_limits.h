// Which of forward's integer arguments index a table, and how long it is: so that a token outside
// the vocabulary is found in the data before the first step, not by a crash inside an embedding.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "graph/lower/lower.h"

namespace dslaunch::graph {

struct ArgumentLimit {
    std::string argument;
    std::string table;  // "wte.weight"
    int64_t rows = 0;   // valid values are 0 … rows - 1
};

// The arguments that an embedding at the graph's top level reads directly; the smallest table of
// each.
[[nodiscard]] std::vector<ArgumentLimit> argument_limits(const LoweredGraph& lowered,
                                                         const Model& model);

}  // namespace dslaunch::graph
