// Half precision: 16-bit parameters in a model, and the casts that its graph needs to run with
// them under autocast (compute_context.h). Used beside model.h and lower.h. No shared state.
#pragma once

#include <c10/core/ScalarType.h>

#include <span>
#include <string>
#include <vector>

#include "base/kinds/dtype.h"
#include "graph/archive/model.h"
#include "graph/archive/scalar_types.h"

namespace dslaunch::graph {

struct LoweredGraph;

// A scope in which PARAMETERS of MODEL are as a run of LOWERED needs them: on its device, and fp32
// and 16-bit ones in its parameter dtype. Its end restores them. Tensors keep their identity, ties,
// requires_grad and strides. Buffers stay: running statistics are sums that 16 bits would lose. For
// a model whose parameters are too large to be brought all at once.
class ParametersAs {
  public:
    ParametersAs(const Model& model, std::span<const int> parameters, const LoweredGraph& lowered);
    ParametersAs(const ParametersAs&) = delete;
    ParametersAs& operator=(const ParametersAs&) = delete;
    ~ParametersAs();

    // Returns the values that the changed parameters have in this scope.
    [[nodiscard]] const std::vector<at::Tensor>& brought() const { return brought_; }

  private:
    std::vector<at::Tensor> tensors_;  // tensors of the model
    std::vector<at::Tensor> before_;
    std::vector<at::Tensor> brought_;
};

// Puts casts in front of the operators of GRAPH that autocast leaves alone and whose kernels take
// no mix of 16-bit and fp32 tensors, or no 16-bit ones: the table in precision.cpp. Interface calls
// are not searched. DTYPE is kBFloat16 or kHalf.
void insert_precision_casts(Graph& graph, at::ScalarType dtype);

// Returns VALUE in fp32, by a node at the graph's insert point; a value that is not 16-bit passes
// unchanged.
[[nodiscard]] Value* in_full_precision(Value* value);

// Returns the text " in bfloat16" with advice, for the message of an operator that failed. Empty
// for kFloat.
[[nodiscard]] std::string precision_advice(at::ScalarType dtype);

}  // namespace dslaunch::graph
