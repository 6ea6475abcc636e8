// A tensor as a view of another one in the same storage, as a few operators on that one. Data path:
// shared_storage.h finds which tensors of a model share memory -> [here] -> the graph, files. No
// shared state.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "graph/nodes/names.h"

namespace dslaunch::graph {

class MemoryView {
  public:
    // Returns how VIEW is made of BASE, with the same storage and dtype; nothing if BASE lacks
    // elements of VIEW, or if views cannot express it. Tensors without elements: nothing.
    [[nodiscard]] static std::optional<MemoryView> make(const at::Tensor& base,
                                                        const at::Tensor& view);

    // Returns true if the view has every element of its base once.
    [[nodiscard]] bool is_whole() const { return whole_; }
    // Returns true if the view is its base: shape, strides and place.
    [[nodiscard]] bool is_same() const { return steps_.empty(); }

    // Returns the view of BASE, with the sizes that make() saw. It shares BASE's memory if the
    // strides are as make() saw them, and else may be a copy.
    [[nodiscard]] at::Tensor of(const at::Tensor& base) const;
    // Adds the operators to GRAPH at its insert point and returns the view of BASE.
    [[nodiscard]] Value* insert(Graph& graph, Value* base) const;

  private:
    // Values are indices of the symbols in insert().
    enum class Operator : uint8_t { kTranspose, kPermute, kReshape, kSlice, kUnfold, kExpand };
    struct Step {
        Operator op;
        std::vector<int64_t> numbers;  // kSlice: begin, end, step of the last dimension;
                                       // kUnfold: size and step of the last dimension
    };
    static std::optional<MemoryView> make_plain(const at::Tensor& base, const at::Tensor& view);
    void add_permute(std::vector<int64_t> order);

    std::vector<Step> steps_;
    bool whole_ = false;
};

}  // namespace dslaunch::graph
