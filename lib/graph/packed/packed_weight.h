// A frozen weight in 8 or 4 bits (QLoRA, arXiv:2305.14314), stored as a parameter like any other:
// its bytes are the elements of a flat tensor of the other parameters' type, so that the weight is
// sharded, gathered, offloaded and counted in the same way. Data path: a model's weight -> [here]
// -> zero/parameters -> packed_base.h, which unpacks it in products. Threads: any; it is only read.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <cstddef>
#include <cstdint>

#include "base/range.h"
#include "kernels/matrix/matrix_shape.h"

namespace dslaunch::graph {

// A packed weight. Its elements are stored in panels of kernels::kPanelOutputs rows. Each panel is
// a separate packed matrix (kernels/matrix/packed_matrix.h). A rank therefore needs to make only
// the panels that overlap its shard.
class PackedWeight {
  public:
    // WEIGHT: floats, [out, in], or [in, out] if TRANSPOSED; its values must not change. FORM: a
    // packed form. ELEMENT: kFloat, kBFloat16 or kHalf.
    PackedWeight(at::Tensor weight, bool transposed, kernels::MatrixForm form,
                 at::ScalarType element);

    // Returns the shape of the matrix, [out, in].
    [[nodiscard]] const kernels::MatrixShape& shape() const { return shape_; }
    // Returns true if the original weight is [in, out].
    [[nodiscard]] bool is_transposed() const { return is_transposed_; }
    [[nodiscard]] const at::Tensor& source() const { return source_; }
    // Returns the number of elements that the packed weight takes; they have the type ELEMENT.
    [[nodiscard]] int64_t numel() const;
    // Returns a placeholder for the elements: zeros, [numel], in read-only memory that takes no
    // space.
    [[nodiscard]] at::Tensor placeholder() const;
    // Computes the packed elements whose indices are in ELEMENTS, and writes them to INTO. The
    // bytes depend only on the weight.
    void read(const Range& elements, std::byte* into) const;
    // Returns the weight as products see it, after packing and unpacking: fp32, with the sizes of
    // source().
    [[nodiscard]] at::Tensor rounded() const;

  private:
    void make_panel(int64_t panel, std::byte* into) const;

    at::Tensor source_;
    bool is_transposed_;
    at::ScalarType element_;
    kernels::MatrixShape shape_;
    int64_t panels_;
    int64_t panel_bytes_;
};

// Unpacks PACKED, a matrix of SHAPE with the default group, into DENSE, which is [out, in],
// contiguous, of PACKED's type and on PACKED's device. Calls the operator `dslaunch::unpack(Tensor
// packed, int form, int outputs, int inputs, Tensor(a!) dense) -> ()`, where FORM is the number of
// a kernels::MatrixForm. A plugin can implement that operator for its device.
void unpack(const at::Tensor& packed, const kernels::MatrixShape& shape, const at::Tensor& dense);

}  // namespace dslaunch::graph
