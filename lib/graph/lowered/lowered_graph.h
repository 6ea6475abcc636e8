// The form that a model's forward is lowered to: one plain graph, and the meaning of its inputs and
// outputs. Data path: lower.h -> [here] -> cuts, segments, tensor rewrites. No shared state.
#pragma once

#include <ATen/core/ivalue.h>
#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "graph/nodes/names.h"

namespace dslaunch::graph {

// New values of parameters that are written together, which depend on parameters, buffers and
// constants alone. The model's graph takes them for written. All groups of a model start from the
// values before any of them.
struct ParameterWrites {
    // Inputs: parameters… buffers…; it writes copies of them. Outputs: the new values.
    std::shared_ptr<Graph> graph;
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

class Model;
class TargetCount;

// An attribute that forward writes (prim::SetAttr): it enters the graph as an input and leaves it
// as an output.
struct ModelState {
    std::string path;  // "encoder.counter"
    c10::intrusive_ptr<c10::ivalue::Object> object;
    std::string attribute;
};

// Graph inputs, in this order: [module?] arguments… states… target? parameters… buffers…
struct LoweredGraph {
    std::shared_ptr<Graph> graph;
    std::vector<std::string> arguments;  // names of the explicit inputs, the loss target last when
                                         // the config names one
    std::vector<c10::TypePtr> argument_types;
    std::vector<ModelState> states;  // inputs after the arguments; outputs after output 0
    bool has_rewards = false;        // the last output is rewards of pairs (lower/loss.cpp)
    std::vector<int> parameters;     // model parameter of each parameter input
    std::vector<int> buffers;        // model buffer of each buffer input
    // Trained parameters that forward writes: before the step, or by the graph itself.
    std::vector<ParameterWrites> writes;
    std::vector<WriteInPlace> in_place;
    std::string output_choice;  // the part of forward's output that is output 0; empty: all of it
    std::string opaque_node;    // the node that needs the module as an input, in
                                // words
    bool reads_mode = false;    // forward asks whether a module trains
    // Counts the targets of a batch (lower/target_count.h); null: which count is not known, and
    // why_no_targets says why.
    std::shared_ptr<const TargetCount> targets;
    std::string why_no_targets;
    bool module_input = false;  // input 0 is the module itself (interface calls): whatever takes it
                                // may read any parameter and buffer, other inputs' too
    at::ScalarType compute_dtype = at::kFloat;  // required of a ComputeContext that runs the graph
    // The dtype in which the graph takes parameters of fp32 or 16 bits: the same, or fp32.
    at::ScalarType parameter_dtype = at::kFloat;
    c10::Device device = c10::kCPU;  // has its constants and the inputs of each run

    [[nodiscard]] size_t first_argument() const { return module_input ? 1 : 0; }
    [[nodiscard]] size_t first_state() const { return first_argument() + arguments.size(); }
    [[nodiscard]] size_t first_parameter() const { return first_state() + states.size(); }
    [[nodiscard]] size_t first_buffer() const { return first_parameter() + parameters.size(); }
};

// Returns "blocks.3.attn (model.py:41)": a node's module path and source line, for messages.
[[nodiscard]] std::string describe_node(const Node& node);
// Returns "blocks.3.attn": the module path alone; empty at the top.
[[nodiscard]] std::string module_path(const Node& node);

struct ArgumentLimit {
    std::string argument;
    std::string table;  // "wte.weight"
    int64_t rows = 0;   // valid values are 0 … rows - 1
};

// Returns the arguments that an embedding at the graph's top level reads directly, each with its
// smallest table.
[[nodiscard]] std::vector<ArgumentLimit> argument_limits(const LoweredGraph& lowered,
                                                         const Model& model);

}  // namespace dslaunch::graph
