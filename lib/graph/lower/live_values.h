// The values that cross a cut in one micro step, with every tensor detached, so that each segment's
// backward is a separate call. Used only by the compute lane.
#pragma once

#include <ATen/core/ivalue.h>

#include <vector>

#include "graph/nodes/tensor_values.h"

namespace dslaunch::graph {

// The values at a cut, and the tensors that connect the backwards on both sides.
struct Boundary {
    std::vector<IValue> values;         // inputs of the next segment: containers are rebuilt with
                                        // detached tensors
    std::vector<at::Tensor> producers;  // the tensors that require grad, as their segment made
                                        // them, with their graph
    std::vector<at::Tensor> leaves;     // the detached producers, in the same order; they require
                                        // grad

    // Returns the bytes of the distinct storages in `values`.
    [[nodiscard]] int64_t bytes() const;
};

// Detaches OUTPUTS. A tensor that appears twice stays a single tensor. A detached tensor requires a
// gradient if its producer does. A tensor that shares its storage with one of LENDERS (parameters,
// buffers) is cloned first, because LENDERS may be released while the tensor is still in use.
[[nodiscard]] Boundary make_boundary(const std::vector<IValue>& outputs,
                                     const std::vector<const c10::StorageImpl*>& lenders);

}  // namespace dslaunch::graph
