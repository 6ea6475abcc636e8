// The arguments of an update's kernel, alike for processors and GPUs: FlatRange checked and as
// pointers, a step's numbers as fp32 constants. Data path: flat optimizer, a GPU's queue -> [here]
// -> kernels. Pure.
#pragma once

#include <span>

#include "kernels/element/update_arrays.h"
#include "kernels/flat_range.h"

namespace dslaunch::kernels {

// Returns SOURCES for a kernel; they must outlive the result. REQUIRES: at least one.
[[nodiscard]] Sources sources_of(std::span<const float* const> sources);
// REQUIRES: kBF16 or kF16.
[[nodiscard]] NumberKind half_kind(DType dtype);

// REQUIRES, for all: what flat_optimizer.h's functions of the same step require. The spans of RANGE
// must outlive the result.
[[nodiscard]] UpdateArrays arrays_of(const FlatRange& range, const AdamStep& step);
[[nodiscard]] UpdateArrays arrays_of(const FlatRange& range, const AdagradStep& step);
[[nodiscard]] UpdateArrays arrays_of(const FlatRange& range, const LionStep& step);
[[nodiscard]] UpdateArrays arrays_of(const FlatRange& range, const SgdStep& step);

[[nodiscard]] AdamConstants constants_of(const AdamStep& step);
[[nodiscard]] AdagradConstants constants_of(const AdagradStep& step);
[[nodiscard]] LionConstants constants_of(const LionStep& step);
[[nodiscard]] SgdConstants constants_of(const SgdStep& step);

}  // namespace dslaunch::kernels
