// What one micro batch shows of a lowered graph: sizes and dtypes of its tensors, values of its
// integers. The graph runs as one piece with a probe behind every node. Feeds placement_flow.h;
// tensor_check.h uses the same runs to compare values.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <unordered_map>
#include <vector>

#include "graph/segment/segment.h"

namespace dslaunch::graph {

class TensorGroup;

// What a graph is run on.
struct GraphInputs {
    std::vector<c10::IValue> arguments;  // as SegmentedModel::first_inputs gives them
    std::vector<at::Tensor> parameters;  // by model parameter
    std::vector<at::Tensor> buffers;     // by model buffer; what forward writes to them is undone
    DrawKey key;
};

struct RunMode {
    bool gradients = false;
    TensorGroup* group = nullptr;  // of a rewritten graph
};

// A lowered graph as one segment that can show its values.
class WholeGraph {
  public:
    // VALUES: top-level values of LOWERED's graph that See is called with, null for all. MODEL's
    // tensors are not read.
    using Values = std::vector<torch::jit::Value*>;
    WholeGraph(const Model& model, const LoweredGraph& lowered, const Values& probed);
    // Tensors, integers, and lists of them, in the order of their nodes.
    [[nodiscard]] static Values values_of(const LoweredGraph& lowered);

    // Returns what the graph gives, autograd attached as MODE says. SEE (index into VALUES, value)
    // is called when a node has made the value. Throws Error{kInput} naming node, module path and
    // source line.
    using See = std::function<void(size_t index, const c10::IValue& value)>;
    std::vector<c10::IValue> run(const GraphInputs& inputs, const RunMode& mode,
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
    std::unordered_map<const torch::jit::Value*, std::vector<TensorFact>> tensors;  // of a list:
                                                                                    // one each
    std::unordered_map<const torch::jit::Value*, int64_t> integers;
};

// Runs LOWERED once on INPUTS, without gradients. Inputs of the graph are among the facts.
[[nodiscard]] GraphFacts observe(const Model& model, const LoweredGraph& lowered,
                                 const GraphInputs& inputs);

}  // namespace dslaunch::graph
