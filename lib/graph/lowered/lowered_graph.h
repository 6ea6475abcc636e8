// The form that a model's forward is lowered to: one plain graph, and the meaning of its inputs and
// outputs. Data path: lower.h -> [here] -> cuts, segments, tensor rewrites. No shared state.
#pragma once

#include <ATen/core/ivalue.h>
#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "graph/nodes/names.h"
#include "graph/rounding/compressed_parameter.h"

namespace dslaunch::graph {

// New values of parameters, all written at the same time. They depend only on parameters, buffers
// and constants. The model's graph expects these values to be written before it runs. If a model
// has several ParameterWrites, all of them are computed from the values before the first write.
struct ParameterWrites {
    // The graph that computes the new values. Its inputs are first the `parameters`, then the
    // `buffers`. The graph does not change its inputs; it writes into copies.
    std::shared_ptr<Graph> graph;
    std::vector<int> parameters;       // model parameter of each parameter input
    std::vector<int> buffers;          // model buffer of each buffer input
    std::vector<int> written;          // model parameter of each output
    std::vector<std::string> nodes;    // by output: a description of the node that writes it
    bool reads_moved_buffers = false;  // true: the new values depend on buffers that forward
                                       // changes
};

// A parameter that the graph itself writes.
struct WriteInPlace {
    int parameter = -1;
    std::string node;  // a description of the node
    std::string why;   // why the write is in no ParameterWrites: "with values that it computes from
                       // the batch"
};

class Model;
class TargetCount;

// An attribute that forward writes (prim::SetAttr): the graph takes it as an input and returns it
// as an output.
struct ModelState {
    std::string path;  // "encoder.counter"
    c10::intrusive_ptr<c10::ivalue::Object> object;
    std::string attribute;
};

// Graph inputs, in this order: [module?] arguments… states… target? parameters… buffers…
struct LoweredGraph {
    std::shared_ptr<Graph> graph;
    std::vector<std::string> arguments;  // names of the explicit inputs, the loss target last if
                                         // the config names one
    std::vector<c10::TypePtr> argument_types;
    std::vector<ModelState> states;  // inputs after the arguments; outputs after output 0
    bool has_rewards = false;        // the last output is the rewards of pairs (lower/loss.cpp)
    std::vector<int> parameters;     // model parameter of each parameter input
    std::vector<int> buffers;        // model buffer of each buffer input
    // Trained parameters that forward writes: `writes` are written before the step, `in_place` by
    // the graph itself.
    std::vector<ParameterWrites> writes;
    std::vector<WriteInPlace> in_place;
    // The parameters that layers read in a rounded or masked form (compress/compressed_layers.h).
    std::vector<CompressedParameter> compressed;
    std::vector<Shrink> shrinks;  // what smaller final weights leave out
    std::string output_choice;    // the part of forward's output that is output 0; empty: all
    std::string opaque_node;      // a description of the node that needs the module
                                  // as an input
    bool reads_mode = false;      // forward reads whether a module is in train mode
    // Counts the targets of a batch (lower/target_count.h). Null if it is not known which targets
    // count; why_no_targets then gives the reason.
    std::shared_ptr<const TargetCount> targets;
    std::string why_no_targets;
    bool takes_module = false;  // input 0 is the module itself (interface calls): a node that reads
                                // it may read any parameter and buffer
    at::ScalarType compute_dtype = at::kFloat;  // of the ComputeContext that runs the graph
    // The dtype in which the graph expects fp32 and 16-bit parameters: compute_dtype or fp32.
    at::ScalarType parameter_dtype = at::kFloat;
    c10::Device device = c10::kCPU;  // of its constants, and of the inputs of each run

    // Return the index of the first input of each sort.
    [[nodiscard]] size_t first_argument() const { return takes_module ? 1 : 0; }
    [[nodiscard]] size_t first_state() const { return first_argument() + arguments.size(); }
    [[nodiscard]] size_t first_parameter() const { return first_state() + states.size(); }
    [[nodiscard]] size_t first_buffer() const { return first_parameter() + parameters.size(); }
};

// Add an input for the model's parameter or buffer of the given index, after the inputs of its
// kind, and return this input. REQUIRES: LOWERED has no such input yet.
torch::jit::Value* add_parameter_input(LoweredGraph& lowered, int parameter);
torch::jit::Value* add_buffer_input(LoweredGraph& lowered, int buffer);

// Returns a node's kind, module path and source line for messages, such as "aten::mm in
// blocks.3.attn (model.py:41)".
[[nodiscard]] std::string describe_node(const Node& node);
// Returns only the module path, such as "blocks.3.attn"; empty at the top.
[[nodiscard]] std::string module_path(const Node& node);

// An argument of forward whose values are indices of a table's rows.
struct ArgumentLimit {
    std::string argument;
    std::string table;  // "wte.weight"
    int64_t rows = 0;   // valid values are 0 … rows - 1
};

// Returns the arguments that embeddings at the graph's top level read directly. If several
// embeddings read an argument, it is listed with the smallest of their tables.
[[nodiscard]] std::vector<ArgumentLimit> argument_limits(const LoweredGraph& lowered,
                                                         const Model& model);

// A table of the model with a row for each position in a sample.
struct PositionTable {
    std::string name;  // "wpe.weight"
    int64_t rows = 0;  // a sample has at most so many positions
};

// Returns the smallest table that an embedding at the graph's top level indexes by position, for
// example with arange. Returns nullopt if there is no such table, as in models with rotary
// embeddings.
[[nodiscard]] std::optional<PositionTable> position_table(const LoweredGraph& lowered,
                                                          const Model& model);

}  // namespace dslaunch::graph
