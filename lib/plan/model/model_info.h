// The facts about a model that a plan needs: segments, parameters and sizes, without LibTorch.
// graph/measure/measure.h fills them in.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/bytes.h"

namespace dslaunch::plan {

// Tensors of at least this size get separate memory blocks, which the process keeps and reuses for
// later tensors (runtime/memory/large_blocks.h).
inline constexpr Bytes kLargeBlock = mib(8);

// The size, type and treatment of a parameter.
struct ParameterInfo {
    std::string name;
    int64_t numel = 0;
    int64_t element_bytes = 4;
    bool trainable = true;
    int64_t rows = 1;          // extent of the first dimension
    int64_t weight_numel = 0;  // elements of the weight before it was packed into NUMEL elements;
                               // 0: not packed
    std::vector<int64_t> shape = {};
    // True if its type cannot be stored in buckets (integers, fp64, complex numbers). Each rank
    // then has the whole parameter, outside of the flat buffer, and it is not trained.
    bool own_type = false;
    bool exact_gradient = false;  // sent between hosts exactly, even if other gradients are packed
};

// The parameters and the measured costs of a segment, for one micro batch.
struct SegmentInfo {
    std::string name;
    std::vector<int> parameters;  // indices into ModelInfo::parameters, each once
    int64_t nodes = 0;
    Bytes output_bytes;      // live values at the segment's end, of one micro step
    Bytes activation_bytes;  // kept by autograd for its backward, without parameters and inputs
    // The largest number of bytes that the segment's tensors take at once, without parameters and
    // inputs. The tensors of the forward are the outputs and the activations that autograd keeps.
    // The backward also has the gradients of outputs, inputs and parameters.
    Bytes forward_peak;
    Bytes backward_peak;
    // The bytes of large blocks (kLargeBlock) that are taken and freed again within the forward
    // (forward_blocks) and within the backward (backward_blocks).
    Bytes forward_blocks;
    Bytes backward_blocks;
    // Bytes that are held between the two halves of a split backward
    // (graph/segment/split_backward.h), without inputs. 0: not measured, because no pipeline splits
    // the backward.
    Bytes weight_half_bytes;
    int64_t forward_flops = 0;  // matrix products and convolutions, 2 per multiply-add
    bool backward = true;       // true: gradients flow to a trainable parameter in this segment or
                                // before it
};

// The segments [begin, end), at least one.
struct SegmentRange {
    int begin = 0;
    int end = 0;

    bool operator==(const SegmentRange&) const = default;
};

// A whole model, or the part of it that a rank computes.
struct ModelInfo {
    std::vector<ParameterInfo> parameters;
    std::vector<SegmentInfo> segments;
    Bytes buffer_bytes;
    Bytes batch_bytes;         // bytes of one micro batch
    int64_t loss_classes = 0;  // number of classes of a cross entropy loss; 0: another loss

    // Returns the number of elements of the weights; a packed weight counts with its unpacked size.
    [[nodiscard]] int64_t parameter_numel() const;
    // Returns the number of elements of the trainable parameters.
    [[nodiscard]] int64_t trainable_numel() const;
    // Returns the FLOPs of the forward of one micro batch.
    [[nodiscard]] int64_t forward_flops() const;
    // Returns a flag for each parameter: true if it gets a gradient, that is, if it is trainable
    // and a segment with a backward reads it.
    [[nodiscard]] std::vector<bool> trained() const;
    // Returns the indices of the parameters that get no gradient.
    [[nodiscard]] std::vector<int> untrained() const;
};

}  // namespace dslaunch::plan
