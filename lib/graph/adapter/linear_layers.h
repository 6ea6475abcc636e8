// The linear layers of a lowered graph: its products with a two-dimensional parameter, in either
// orientation. Data path: lower.h -> [here] -> adapters.h, packed_base.h. No shared state.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "graph/archive/model.h"
#include "graph/lowered/lowered_graph.h"

namespace dslaunch::graph {

// A product of NODE with a parameter. NODE's input INPUT is the other factor, [.., in]. NODE's
// input WEIGHT is the parameter, read as [out, in], or as [in, out] if IS_TRANSPOSED.
struct LinearUse {
    Node* node = nullptr;
    size_t input = 0;
    size_t weight = 0;
    bool is_transposed = false;
};

// A weight and the products that use it.
struct LinearLayer {
    int parameter = -1;       // index in the model
    Value* weight = nullptr;  // the parameter's input of the graph
    // The name of the weight's module, such as "blocks.0.attn.q_proj". If the output layer shares
    // the table of tokens, this is the output layer's name. If a module has several weights, this
    // is the weight's own name.
    std::string name;
    bool is_transposed = false;
    std::vector<LinearUse> uses;  // in graph order
    // True if forward also reads the weight elsewhere; for example, a tied table of tokens.
    bool is_read_elsewhere = false;
};

// Returns the part of NAME before its last dot: the name of the module that contains the tensor
// NAME. Returns "" if there is no dot.
[[nodiscard]] std::string module_of(const std::string& name);
// Returns the name of the module with the weight NAME, "….weight". If NAME has another ending, as
// in a module with several weights, returns NAME itself.
[[nodiscard]] std::string module_of_weight(const std::string& name);

// Returns the layers of LOWERED, a graph of MODEL, in the order in which forward computes them.
// Leaves out parameters of adapters. Also leaves out a parameter that forward uses both as it is
// and transposed; for example, an autoencoder's decoder may be the transposed encoder.
[[nodiscard]] std::vector<LinearLayer> find_linear_layers(const Model& model,
                                                          const LoweredGraph& lowered);

// Returns the name of the output layer that shares parameter INDEX of MODEL, a table of tokens;
// empty if no other module has this parameter as its weight.
[[nodiscard]] std::string tied_head_of(const Model& model, int index);

}  // namespace dslaunch::graph
