// The facts of a model that the plan needs: segments, parameters and sizes, without LibTorch. They
// are filled in by graph/measure/measure.h.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/bytes.h"

namespace dslaunch::plan {

// Tensors of this size and larger lie in blocks of their own that the process keeps for later
// tensors (runtime/memory/large_blocks.h).
inline constexpr Bytes kLargeBlock = mib(8);

struct ParameterInfo {
    std::string name;
    int64_t numel = 0;
    int64_t element_bytes = 4;
    bool trainable = true;
    int64_t rows = 1;          // extent of the first dimension
    int64_t weight_numel = 0;  // of the weight, where NUMEL elements hold it packed; 0: NUMEL
    std::vector<int64_t> shape = {};
    // It has a type that buckets do not hold (integers, fp64, complex numbers): each rank has it
    // whole, outside of the flat buffer, and it is not trained.
    bool own_type = false;
    bool exact_gradient = false;  // travels between hosts as it is where others do in 16 bits
};

struct SegmentInfo {
    std::string name;
    std::vector<int> parameters;  // indices into ModelInfo::parameters, each once
    int64_t nodes = 0;
    Bytes output_bytes;      // the live values at its end, one micro step
    Bytes activation_bytes;  // kept by autograd for its backward, besides parameters and inputs
    // The most bytes of its tensors at once, besides parameters and inputs: with outputs and the
    // activations that autograd keeps; in the backward also with the gradients of outputs, inputs
    // and parameters.
    Bytes forward_peak;
    Bytes backward_peak;
    // The large blocks (kLargeBlock) that forward and backward take besides and free again.
    Bytes forward_blocks;
    Bytes backward_blocks;
    // Bytes held between the halves of a split backward (graph/segment/split_backward.h), besides
    // inputs; 0: not measured, no pipeline splits it.
    Bytes weight_half_bytes;
    int64_t forward_flops = 0;  // matrix products and convolutions: 2 per multiply-add
    bool backward = true;       // true: there is a path to a trainable parameter
};

// Segments [begin, end), never empty.
struct SegmentRange {
    int begin = 0;
    int end = 0;

    bool operator==(const SegmentRange&) const = default;
};

struct ModelInfo {
    std::vector<ParameterInfo> parameters;
    std::vector<SegmentInfo> segments;
    Bytes buffer_bytes;
    Bytes batch_bytes;         // one micro batch
    int64_t loss_classes = 0;  // classes of the loss's cross entropy; 0: another loss

    // Returns the elements of the weights, packed or not.
    [[nodiscard]] int64_t parameter_numel() const;
    [[nodiscard]] int64_t trainable_numel() const;
    [[nodiscard]] int64_t forward_flops() const;
    // Returns a mark for each parameter: true if it gets a gradient, so if it is trainable and a
    // segment with a backward reads it.
    [[nodiscard]] std::vector<bool> trained() const;
    // Returns the indices of all other parameters.
    [[nodiscard]] std::vector<int> untrained() const;
};

}  // namespace dslaunch::plan
