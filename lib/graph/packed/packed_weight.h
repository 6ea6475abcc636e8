// A frozen weight in 8 or 4 bits (QLoRA, arXiv:2305.14314), held as a parameter like any other: its
// bytes are the elements of a flat tensor of the other parameters' type, so that they are sharded,
// gathered, offloaded and counted in the same way. Data path: a model's weight -> [here] ->
// zero/parameters -> packed_base.h, which unpacks it in products. Threads: reads only, by any.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <cstddef>
#include <cstdint>

#include "base/range.h"
#include "kernels/matrix/matrix_shape.h"

namespace dslaunch::graph {

// The elements are panels of kernels::kPanelOutputs rows, one after the other, each a packed matrix
// of its own (kernels/matrix/packed_matrix.h): a rank makes the panels that its shard meets, and no
// others.
class PackedWeight {
  public:
    // WEIGHT, [out, in], or [in, out] if TRANSPOSED, of floats, in FORM, a packed one; ELEMENT is
    // kFloat, kBFloat16 or kHalf. WEIGHT's values must stay as they are.
    PackedWeight(at::Tensor weight, bool transposed, kernels::MatrixForm form,
                 at::ScalarType element);

    // Returns the shape of the matrix, [out, in].
    [[nodiscard]] const kernels::MatrixShape& shape() const { return shape_; }
    // Returns true if the weight that it was made of is [in, out].
    [[nodiscard]] bool is_transposed() const { return transposed_; }
    [[nodiscard]] const at::Tensor& source() const { return source_; }
    // Returns the number of elements that hold it.
    [[nodiscard]] int64_t numel() const;
    // Returns zeros in the place of the elements, [numel]: memory that nobody may write and that
    // takes no room.
    [[nodiscard]] at::Tensor placeholder() const;
    // Makes ELEMENTS and writes them to INTO. The bytes depend on the weight alone.
    void read(const Range& elements, std::byte* into) const;
    // Returns the weight as products see it, of SOURCE's sizes, fp32.
    [[nodiscard]] at::Tensor rounded() const;

  private:
    void make_panel(int64_t panel, std::byte* into) const;

    at::Tensor source_;
    bool transposed_;
    at::ScalarType element_;
    kernels::MatrixShape shape_;
    int64_t panels_;
    int64_t panel_bytes_;
};

// Writes the matrix of SHAPE, of the default group, that PACKED holds to DENSE, [out, in],
// contiguous, of PACKED's type, both on one device. It is the operator
// `dslaunch::unpack(Tensor packed, int form, int outputs, int inputs, Tensor(a!) dense) -> ()`,
// FORM a number of kernels::MatrixForm: a plugin's body of it works for the plugin's device.
void unpack(const at::Tensor& packed, const kernels::MatrixShape& shape, const at::Tensor& dense);

}  // namespace dslaunch::graph
