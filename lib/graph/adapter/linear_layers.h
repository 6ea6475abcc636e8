// The linear layers of a lowered graph: its products with a parameter of two dimensions, whatever
// way the weight lies. Data path: lower.h -> [here] -> adapters.h, packed_base.h. No shared state.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "graph/archive/model.h"
#include "graph/lowered/lowered_graph.h"

namespace dslaunch::graph {

// A product with a parameter: input INPUT of NODE, [.., in], times the weight, read as [out, in],
// or [in, out] if TRANSPOSED.
struct LinearUse {
    Node* node = nullptr;
    size_t input = 0;
    size_t weight = 0;
    bool transposed = false;
};

struct LinearLayer {
    int parameter = -1;       // of the model
    Value* weight = nullptr;  // the parameter's input of the graph
    // The name of the weight's module, "blocks.0.attn.q_proj". The output layer has its own name
    // where it shares the table of tokens, and so has each of several weights of one module.
    std::string name;
    bool transposed = false;
    std::vector<LinearUse> uses;  // in the order of the graph
    // True if forward reads the weight in another way too, as a tied table of tokens is.
    bool read_elsewhere = false;
};

// Returns the layers of LOWERED, a graph of MODEL, in the order in which forward computes them.
// Parameters of adapters make none, and neither does one that forward multiplies with both as it is
// and transposed, as a decoder that is the turned encoder.
[[nodiscard]] std::vector<LinearLayer> find_linear_layers(const Model& model,
                                                          const LoweredGraph& lowered);

// Returns the name of the output layer with the weight of parameter INDEX of MODEL, a table of
// tokens; empty: no other module has it as its weight.
[[nodiscard]] std::string tied_head_of(const Model& model, int index);

}  // namespace dslaunch::graph
