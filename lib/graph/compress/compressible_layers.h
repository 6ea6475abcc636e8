// The layers of a lowered graph that compression can change: linear layers, convolutions over two
// dimensions, and tables of rows. Data path: lower.h -> [here] -> compressed_layers.h. No shared
// state.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "graph/archive/model.h"
#include "graph/lowered/lowered_graph.h"

namespace dslaunch::graph {

enum class LayerSort { kLinear, kTable, kConvolution };

// An input of a node.
struct NodeInput {
    Node* node = nullptr;
    size_t input = 0;
};

// A layer: a weight, and the nodes that compute the layer with this weight.
struct CompressibleLayer {
    LayerSort sort = LayerSort::kLinear;
    int parameter = -1;              // index in the model
    std::vector<std::string> names;  // of its modules, such as "blocks.0.attn.q_proj"
    bool is_transposed = false;      // a linear layer's weight is stored as [in, out]
    bool is_also_table = false;      // a linear layer's weight is also a table of rows
    // The node inputs that receive the weight directly from the graph's input. The nodes compute
    // the layer's products, or change the weight for the products.
    std::vector<NodeInput> weight_reads;
    std::vector<NodeInput> input_reads;  // the layer's own inputs; empty for a table
    std::vector<Value*> biases;          // the layer's biases that are parameters
};

// Returns the layers of LOWERED, a graph of MODEL. A weight that two modules share is one layer.
[[nodiscard]] std::vector<CompressibleLayer> find_compressible_layers(const Model& model,
                                                                      const LoweredGraph& lowered);

}  // namespace dslaunch::graph
