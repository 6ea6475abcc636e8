// Parameters of a model as a run of its graph needs them: on the run's device and in its dtype.
// Data path: model.h, lower.h -> [here] -> measurements and checks of segments. One thread.
#pragma once

#include <ATen/core/Tensor.h>

#include <span>
#include <vector>

#include "graph/archive/model.h"
#include "graph/lowered/lowered_graph.h"

namespace dslaunch::graph {

// A scope in which PARAMETERS of MODEL are on LOWERED's device, and fp32 and 16-bit parameters also
// have LOWERED's parameter dtype. Used if all parameters together are too large for the device. The
// end of the scope restores the parameters. Tensors remain the same objects, and keep their ties,
// requires_grad and strides. Buffers do not change, because running statistics are sums that would
// lose precision in 16 bits.
class ParametersAs {
  public:
    // Reads LOWERED only in this constructor.
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

}  // namespace dslaunch::graph
