// What crosses a cut: the live values of one micro step, with every tensor detached, so that each
// segment's backward is a call of its own. Used by the compute lane only.
#pragma once

#include <ATen/core/ivalue.h>

#include <functional>
#include <vector>

namespace dslaunch::graph {

struct Boundary {
    std::vector<c10::IValue> values;    // inputs of the next segment: containers rebuilt around
                                        // detached tensors
    std::vector<at::Tensor> producers;  // the tensors that require grad as their segment made them,
                                        // graph attached
    std::vector<at::Tensor> leaves;     // what became of them: same order, detached, require grad

    // Bytes of the distinct storages in `values`.
    [[nodiscard]] int64_t bytes() const;
};

// Detaches OUTPUTS. A tensor that appears twice is kept one. requires_grad is what the producer
// had. A tensor that shares a storage with one of LENDERS (parameters, buffers) is cloned first: it
// must not dangle once they are released.
[[nodiscard]] Boundary make_boundary(std::vector<c10::IValue> outputs,
                                     const std::vector<const c10::StorageImpl*>& lenders);

// VALUE rebuilt with every tensor inside replaced by what MAP returns.
[[nodiscard]] c10::IValue map_tensors(const c10::IValue& value,
                                      const std::function<at::Tensor(const at::Tensor&)>& map);

}  // namespace dslaunch::graph
