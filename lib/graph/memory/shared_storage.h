// Finds the tensors of a module that share memory. In each group, one tensor is the owner, and the
// others are views of it. Data path: a module's named tensors -> [here] -> model.h. No shared
// state.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <string>
#include <vector>

#include "graph/memory/memory_view.h"

namespace dslaunch::graph {

// A tensor of a module by one of its names.
struct SharingTensor {
    std::string name;  // empty: an attribute that is no parameter and no buffer
    at::Tensor tensor;
    bool is_parameter = false;

    // Returns true if an optimizer updates the tensor.
    [[nodiscard]] bool is_trained() const { return is_parameter && tensor.requires_grad(); }
};

// The owner of a tensor's memory, and the tensor's view of the owner.
struct TensorHome {
    int owner = 0;                   // index of the tensor that owns the memory
    std::optional<MemoryView> view;  // nothing: the tensor is its own owner
    // True if the tensor overlaps other untrained tensors, but not all of them are views of one
    // tensor. The tensor then has its own copy of the values. The copy stays correct as long as
    // nothing writes to any of these tensors.
    bool is_loose = false;
};

// Returns a home for each of TENSORS. The memory of owners does not overlap, but they may share a
// storage. The owner is the first tensor that is trained. If no tensor is trained, it is the tensor
// with the most elements. Among tensors of equal size, parameters come before buffers, and then the
// first tensor is taken. A tensor without a name never owns a tensor with a name. Throws
// Error{kInput}, naming two tensors that overlap, in two cases: one is trained and the other is not
// a view of it; or both are trained and have different elements.
[[nodiscard]] std::vector<TensorHome> find_homes(const std::vector<SharingTensor>& tensors);

// Returns true if A and B have an element of memory in common.
[[nodiscard]] bool overlap(const at::Tensor& a, const at::Tensor& b);

// Returns true if A and B have the same elements in the same memory, the same order and the same
// type.
[[nodiscard]] bool is_same_view(const at::Tensor& a, const at::Tensor& b);

// Returns copies of TENSORS; floating-point copies are in DTYPE if it is given. Copies of tensors
// that share a storage also share a storage, at the same offsets. If a storage is read as several
// types, the copies keep these types.
[[nodiscard]] std::vector<at::Tensor> copied_together(
    const std::vector<at::Tensor>& tensors, std::optional<at::ScalarType> dtype = std::nullopt);

}  // namespace dslaunch::graph
