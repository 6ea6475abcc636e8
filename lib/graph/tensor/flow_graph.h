// A lowered graph in the form in which placements flow through it: its nodes, its parameters, the
// sizes of its values, and the layers that compute them. Nothing here depends on which parameters
// are split. Data path: lower.h, graph_facts.h -> [here] -> flow_state.h, placement_flow.h. No
// shared state; const: any thread.
#pragma once

#include <torch/csrc/jit/ir/ir.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "graph/tensor/graph_facts.h"
#include "graph/tensor/tensor_placement.h"

namespace dslaunch::graph {

// A product with a weight: [.., in] x weight. WEIGHT_IN and WEIGHT_OUT are dimensions of the weight
// in the form in which the node reads it. The product sums over WEIGHT_IN; WEIGHT_OUT becomes the
// dimension of the outputs.
struct LinearForm {
    size_t input = 0;
    size_t weight = 1;
    std::optional<size_t> bias;
    int64_t weight_in = 1;
    int64_t weight_out = 0;
};

// The origin of a value that is computed from a parameter only by transposes and casts: the
// parameter, and for each dimension of the value the matching dimension of the parameter.
struct ParameterOrigin {
    int parameter = -1;
    std::vector<int64_t> dims;
};

// The facts about a graph that hold for every split.
class FlowGraph {
  public:
    // MODEL, LOWERED and FACTS must outlive this.
    FlowGraph(const Model& model, const LoweredGraph& lowered, const GraphFacts& facts);

    // Returns the top-level nodes except constants, in order. An index of a node is an index in
    // this list.
    [[nodiscard]] const std::vector<Node*>& nodes() const { return nodes_; }
    // Returns the outputs of the graph.
    [[nodiscard]] at::ArrayRef<Value*> outputs() const { return lowered_.graph->outputs(); }
    // Returns the indices of the first and the last node that read PARAMETER. If no node reads it,
    // the first is nodes().size().
    [[nodiscard]] std::pair<size_t, size_t> uses_of(int parameter) const;
    // Returns the index of the last node that reads VALUE; a node also counts if a node in its
    // blocks reads VALUE. Returns nodes().size() if the graph returns VALUE.
    [[nodiscard]] size_t last_use(const Value* value) const;
    // Returns true if a later node writes to VALUE in place (find_written_values()).
    [[nodiscard]] bool is_written(const Value* value) const { return written_.count(value) > 0; }

    // Returns the sizes of a tensor, or of ELEMENT of a list of tensors. REQUIRES: has_sizes().
    [[nodiscard]] const std::vector<int64_t>& sizes(const Value* value, size_t element = 0) const;
    // Returns true if VALUE is a tensor or a list of tensors.
    [[nodiscard]] bool has_sizes(const Value* value) const { return list_size(value) > 0; }
    // Returns the number of tensors in a list, 1 for a tensor, and 0 for other values.
    [[nodiscard]] size_t list_size(const Value* value) const;
    // Returns the bytes of a whole tensor. REQUIRES: has_sizes().
    [[nodiscard]] int64_t bytes(const Value* value) const;
    // Returns the integer that VALUE contains; nullopt if VALUE is not an integer, or if the facts
    // do not include it.
    [[nodiscard]] std::optional<int64_t> integer(const Value* value) const;
    // Returns true if VALUE depends on a trained parameter and may have a gradient.
    [[nodiscard]] bool needs_gradient(const Value* value) const {
        return needs_gradient_.count(value) > 0;
    }

    // Returns the index of the model parameter if VALUE is an input of the graph for a parameter;
    // nothing for other values.
    [[nodiscard]] std::optional<int> parameter_of(const Value* value) const;
    // Return a parameter's name and a description of VALUE, for messages.
    [[nodiscard]] std::string parameter_name(int parameter) const;
    [[nodiscard]] std::string describe(const Value* value) const;
    // Returns the parameter from which VALUE is made by transposes and casts alone; nothing if
    // VALUE is computed in any other way.
    [[nodiscard]] std::optional<ParameterOrigin> origin_of(const Value* value) const;

    // Returns true if VALUE is an argument of forward, or is made from one by reshapes, slices and
    // casts alone.
    [[nodiscard]] static bool is_argument(const Value* value);
    // Returns true if NODE multiplies the rows of each expert by that expert's weight.
    [[nodiscard]] static bool is_grouped_product(const Node& node);
    // Returns the operands of NODE if it is a linear layer, a product with one parameter.
    [[nodiscard]] std::optional<LinearForm> linear_form(const Node& node) const;
    // Returns the first table that an argument of forward indexes; null if there is none.
    [[nodiscard]] const Node* table_of_tokens() const;
    // Returns the linear layers whose outputs VALUE is computed from: for each layer, the split of
    // its weight along the outputs. Returns nullopt if VALUE is computed from a table, or if too
    // many nodes lie between the layers and VALUE.
    [[nodiscard]] std::optional<std::vector<TensorPlacement>> layers_of(const Value* value) const;
    // Returns true if VALUE needs a gradient and is computed only from parameters and numbers, not
    // by a layer.
    [[nodiscard]] bool is_made_of_parameters(const Value* value) const;

  private:
    // Calls VISIT with each node that computes VALUE from parameters with gradients, starting with
    // the last node. If VISIT sets its second argument to true, the node's inputs are visited too.
    // Returns false if VISIT returns false, or after too many nodes (kNodesMax).
    template <typename Visit>
    [[nodiscard]] bool visit_makers(const Value* value, const Visit& visit) const;
    [[nodiscard]] bool may_need_gradient(const Value& value) const;

    const Model& model_;
    const LoweredGraph& lowered_;
    const GraphFacts& facts_;
    std::vector<Node*> nodes_;
    std::unordered_map<const Node*, size_t> index_;
    std::map<const Value*, int> parameter_of_;
    std::set<const Value*> needs_gradient_;
    std::set<const Value*> written_;
};

}  // namespace dslaunch::graph
