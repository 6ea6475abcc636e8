// Describes a tensor as a view of another tensor in the same storage, by a few operators on the
// other tensor. Data path: shared_storage.h finds which tensors of a model share memory -> [here]
// -> the graph, files. No shared state.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "graph/nodes/names.h"

namespace dslaunch::graph {

// The operators that make a view from its base.
class MemoryView {
  public:
    // Returns the operators that make VIEW from BASE, which has the same storage and dtype. Returns
    // nothing if BASE does not contain all elements of VIEW, if views cannot express it, or if BASE
    // or VIEW has no elements.
    [[nodiscard]] static std::optional<MemoryView> make(const at::Tensor& base,
                                                        const at::Tensor& view);

    // Returns true if the view contains every element of its base exactly once.
    [[nodiscard]] bool is_whole() const { return is_whole_; }
    // Returns true if the view equals its base in shape, strides and offset.
    [[nodiscard]] bool is_same() const { return steps_.empty(); }

    // Returns the view of BASE, with the sizes that make() saw. The view shares BASE's memory if
    // BASE still has the strides that make() saw; otherwise it may be a copy.
    [[nodiscard]] at::Tensor of(const at::Tensor& base) const;
    // Adds the operators to GRAPH at its insert point and returns the view of BASE.
    [[nodiscard]] Value* insert(Graph& graph, Value* base) const;

  private:
    // insert() lists the operators' symbols in the same order.
    enum class Operator : uint8_t { kTranspose, kPermute, kReshape, kSlice, kUnfold, kExpand };
    struct Step {
        Operator op;
        std::vector<int64_t> numbers;  // kSlice: begin, end, step of the last dimension;
                                       // kUnfold: size and step of the last dimension
    };
    static std::optional<MemoryView> make_plain(const at::Tensor& base, const at::Tensor& view);
    void add_permute(std::vector<int64_t> order);

    std::vector<Step> steps_;
    bool is_whole_ = false;
};

}  // namespace dslaunch::graph
