// The arguments of an update's kernel, the same for processors and GPUs: the arrays of a checked
// FlatRange as pointers, and the numbers of a step as fp32 constants. Data path: flat optimizer, a
// GPU's queue -> [here] -> kernels. Pure.
#pragma once

#include <span>

#include "kernels/element/update_arrays.h"
#include "kernels/flat_range.h"

namespace dslaunch::kernels {

// Returns SOURCES in the form that kernels take; SOURCES must outlive the result. REQUIRES: at
// least one source.
[[nodiscard]] Sources sources_of(std::span<const float* const> sources);
// Returns the number type of kernels that corresponds to DTYPE. REQUIRES: DTYPE is kBF16 or kF16.
[[nodiscard]] NumberKind half_kind(DType dtype);

// Return the arrays of RANGE for a kernel. The spans of RANGE must outlive the result. RANGE must
// meet the requirements that flat_optimizer.h states for the update by STEP.
[[nodiscard]] UpdateArrays arrays_of(const FlatRange& range, const AdamStep& step);
[[nodiscard]] UpdateArrays arrays_of(const FlatRange& range, const AdagradStep& step);
[[nodiscard]] UpdateArrays arrays_of(const FlatRange& range, const LionStep& step);
[[nodiscard]] UpdateArrays arrays_of(const FlatRange& range, const SgdStep& step);

// Return the constants of the step, which are computed in fp64 and rounded to fp32.
[[nodiscard]] AdamConstants constants_of(const AdamStep& step);
[[nodiscard]] AdagradConstants constants_of(const AdagradStep& step);
[[nodiscard]] LionConstants constants_of(const LionStep& step);
[[nodiscard]] SgdConstants constants_of(const SgdStep& step);

}  // namespace dslaunch::kernels
