// Trained parameters that a model's forward writes in place, apart from the graph: what their new
// values are computed from, or why they are written in place. Data path: lower.h -> [here] -> the
// job, which writes them before each step or refuses. Plain data.
#pragma once

#include <memory>
#include <string>
#include <vector>

namespace torch::jit {
struct Graph;
}

namespace dslaunch::graph {

// New values of parameters that are written together, which depend on parameters, buffers and
// constants alone. The model's graph takes them for written. All groups of a model start from the
// values before any of them.
struct ParameterWrites {
    // Inputs: parameters… buffers…, of which it writes copies. Outputs: the new values.
    std::shared_ptr<torch::jit::Graph> graph;
    std::vector<int> parameters;       // model parameter of each parameter input
    std::vector<int> buffers;          // model buffer of each buffer input
    std::vector<int> written;          // model parameter of each output
    std::vector<std::string> nodes;    // by output: the node that writes it, in words
    bool reads_moved_buffers = false;  // true: they depend on buffers that forward moves
};

// A parameter that the graph itself writes.
struct WriteInPlace {
    int parameter = -1;
    std::string node;  // in words
    std::string why;   // why it is not among ParameterWrites: "by what it computes from the batch"
};

}  // namespace dslaunch::graph
