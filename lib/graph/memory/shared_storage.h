// The tensors of a module that share memory, and their owners; the others are views of these. Data
// path: a module's named tensors -> [here] -> model.h. No shared state.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <string>
#include <vector>

#include "graph/memory/memory_view.h"

namespace dslaunch::graph {

struct SharingTensor {
    std::string name;  // empty: an attribute that is no parameter and no buffer
    at::Tensor tensor;
    bool is_parameter = false;

    [[nodiscard]] bool is_trained() const { return is_parameter && tensor.requires_grad(); }
};

// The place of one of several tensors.
struct TensorHome {
    int owner = 0;  // the tensor that has the memory: itself, or the one that this is a view of
    std::optional<MemoryView> view;  // nothing: it is its own owner
    // True if it shares memory with tensors that are not views of each other and do not train.
    // Values of its own are right as long as nothing is written to any of them.
    bool is_loose = false;
};

// Returns a home for each of TENSORS. Owners share no memory with each other, but may lie in one
// storage. The owner is the first tensor that trains; if no tensor trains, the one with the most
// elements, a parameter before a buffer, the first of equals. A tensor without a name owns no named
// one. Throws Error{kInput} with the names of two tensors that overlap if one of them trains and
// the other is not a view of it, or trains other elements.
[[nodiscard]] std::vector<TensorHome> find_homes(const std::vector<SharingTensor>& tensors);

// Returns true if A and B have an element of memory in common.
[[nodiscard]] bool overlap(const at::Tensor& a, const at::Tensor& b);

// Returns true if A and B are the same elements of the same memory in the same order, of one type.
[[nodiscard]] bool is_same_view(const at::Tensor& a, const at::Tensor& b);

// Returns copies of TENSORS, floating ones in DTYPE if it is given. Copies of tensors that share a
// storage share one, at the same places. A storage that is read as several types keeps them.
[[nodiscard]] std::vector<at::Tensor> copied_together(
    const std::vector<at::Tensor>& tensors, std::optional<at::ScalarType> dtype = std::nullopt);

}  // namespace dslaunch::graph
