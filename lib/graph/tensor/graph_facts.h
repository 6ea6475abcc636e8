// Facts of a lowered graph from a run on one micro batch: sizes and dtypes of its tensors, values
// of its integers. The graph runs as one piece with a probe after every node. Feeds
// placement_flow.h; tensor_check.h uses the same runs to compare values.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <unordered_map>
#include <vector>

#include "graph/nodes/graph_nodes.h"
#include "graph/segment/segment.h"

namespace dslaunch::graph {

class TensorGroup;

// The inputs of a run of a whole graph.
struct GraphInputs {
    std::vector<IValue> arguments;       // from SegmentedModel::first_inputs
    std::vector<at::Tensor> parameters;  // by model parameter
    std::vector<at::Tensor> buffers;     // by model buffer; a run moves copies of them
    DrawKey key;
};

struct RunMode {
    bool gradients = false;
    TensorGroup* group = nullptr;  // group of a rewritten graph; null: the graph is not rewritten
};

// A lowered graph as one segment that can show its values.
class WholeGraph {
  public:
    // PROBED are the top-level values of LOWERED's graph with which See is called. MODEL's tensors
    // are not read.
    using Values = std::vector<Value*>;
    WholeGraph(const Model& model, const LoweredGraph& lowered, const Values& probed);
    // Returns tensors, integers, and lists of them, in the order of their nodes.
    [[nodiscard]] static Values values_of(const LoweredGraph& lowered);

    // Returns the graph's outputs, with autograd graph if MODE asks for it. SEE(index into PROBED,
    // value) is called when a node has made the value. Throws Error{kInput} naming node, module
    // path and source line.
    using See = std::function<void(size_t index, const IValue& value)>;
    std::vector<IValue> run(const GraphInputs& inputs, const RunMode& mode,
                            const See& see = {}) const;

  private:
    at::ScalarType compute_dtype_;
    Segment segment_;
};

struct TensorFact {
    std::vector<int64_t> sizes;
    at::ScalarType dtype = at::kFloat;
};

struct GraphFacts {
    std::unordered_map<const Value*, std::vector<TensorFact>> tensors;  // one fact, or
                                                                        // one per
                                                                        // element of a
                                                                        // list
    std::unordered_map<const Value*, int64_t> integers;
};

// Runs LOWERED once on INPUTS, without gradients. Inputs of the graph are among the facts.
[[nodiscard]] GraphFacts observe(const Model& model, const LoweredGraph& lowered,
                                 const GraphInputs& inputs);

// Returns true if NODE writes to one of its inputs.
[[nodiscard]] bool writes(const Node& node);

}  // namespace dslaunch::graph
