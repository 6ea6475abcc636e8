// Facts about a lowered graph from a run on one micro batch: the sizes and dtypes of its tensors,
// and the values of its integers. The graph runs as a whole, with a probe after every node. Used by
// flow_graph.h; tensor_check.h uses such runs to compare values.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <unordered_map>
#include <vector>

#include "graph/nodes/graph_nodes.h"
#include "graph/segment/segmented_model.h"

namespace dslaunch::graph {

class TensorGroup;

// The inputs of a run of a whole graph.
struct GraphInputs {
    std::vector<IValue> arguments;       // from SegmentedModel::first_inputs()
    std::vector<at::Tensor> parameters;  // by model parameter
    std::vector<at::Tensor> buffers;     // by model buffer; a run changes copies of them
    DrawKey key;
};

// Options of a run of a whole graph.
struct RunMode {
    bool records_gradients = false;
    TensorGroup* group = nullptr;  // group of a rewritten graph; null: the graph is not rewritten
};

// A lowered graph as one segment that can report its values.
class WholeGraph {
  public:
    // run() reports the values in PROBED, which must be at the top level of LOWERED's graph. The
    // constructor does not read MODEL's tensors.
    using ValueList = std::vector<Value*>;
    WholeGraph(const Model& model, const LoweredGraph& lowered, const ValueList& probed);
    // Returns the graph's tensors, integers, and lists of them, in the order of their nodes.
    [[nodiscard]] static ValueList values_of(const LoweredGraph& lowered);

    // Called with each probed value and its index in PROBED.
    using See = std::function<void(size_t index, const IValue& value)>;
    // Returns the graph's outputs, with an autograd graph if MODE asks for it. Calls SEE when a
    // node has made a probed value. If a node fails, throws Error{kInput}, naming the node, module
    // path and source line.
    std::vector<IValue> run(const GraphInputs& inputs, const RunMode& mode,
                            const See& see = {}) const;

  private:
    at::ScalarType compute_dtype_;
    Segment segment_;
};

// The size and type of a tensor, without its values.
struct TensorFact {
    std::vector<int64_t> sizes;
    at::ScalarType dtype = at::kFloat;
};

// Facts about the values of a graph, found by running the graph once.
struct GraphFacts {
    // One fact for a tensor, or one fact for each element of a list.
    std::unordered_map<const Value*, std::vector<TensorFact>> tensors;
    std::unordered_map<const Value*, int64_t> integers;
};

// Runs LOWERED once on INPUTS, without gradients. The facts include the inputs of the graph.
[[nodiscard]] GraphFacts observe(const Model& model, const LoweredGraph& lowered,
                                 const GraphInputs& inputs);

// Returns true if NODE writes to one of its inputs.
[[nodiscard]] bool writes(const Node& node);

}  // namespace dslaunch::graph
