// The values that cross a cut in one micro step, with every tensor detached, so that each segment's
// backward is a call of its own. Used by the compute lane only.
#pragma once

#include <ATen/core/ivalue.h>

#include <vector>

#include "graph/nodes/tensor_values.h"

namespace dslaunch::graph {

struct Boundary {
    std::vector<IValue> values;         // inputs of the next segment: containers rebuilt around
                                        // detached tensors
    std::vector<at::Tensor> producers;  // the tensors that require grad, as their segment made
                                        // them, with their graph
    std::vector<at::Tensor> leaves;     // the producers detached, in the same order; they require
                                        // grad

    // Bytes of the distinct storages in `values`.
    [[nodiscard]] int64_t bytes() const;
};

// Detaches OUTPUTS. A tensor that appears twice stays one. requires_grad is the producer's. A
// tensor that shares a storage with one of LENDERS (parameters, buffers) is cloned first: its
// memory must outlive their release.
[[nodiscard]] Boundary make_boundary(const std::vector<IValue>& outputs,
                                     const std::vector<const c10::StorageImpl*>& lenders);

}  // namespace dslaunch::graph
