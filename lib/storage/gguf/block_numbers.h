// Converts between fp32 numbers and the forms of a GGUF file. Data path: gguf_file.h ->
// (dequantize) -> weights; weights -> (quantize) -> gguf_file.h. Pure; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "storage/gguf/gguf_form.h"

namespace dslaunch::storage {

// Writes the numbers that BYTES stand for to OUT, with the same bits as ggml computes them. F64 is
// rounded to fp32. REQUIRES: BYTES has gguf_bytes(FORM, OUT.size()); OUT's length is a multiple of
// the block.
void gguf_dequantize(GgufForm form, std::span<const std::byte> bytes, std::span<float> out);

// Writes NUMBERS to OUT in FORM. In F16, BF16 and Q8_0 each number is rounded to nearest. In the
// other forms a search chooses scales and minimums that make the weighted sum of squared errors
// small. The weights are IMPORTANCE, one number of at least 0 for each of NUMBERS; if IMPORTANCE is
// empty, all weights are 1. Except for the rounding of scales to fp16, the sum is never larger than
// with gguf_round(). REQUIRES: is_written(FORM); the numbers are finite; their count is a multiple
// of the block; OUT has gguf_bytes().
void gguf_quantize(GgufForm form, std::span<const float> numbers, std::span<const float> importance,
                   std::span<std::byte> out);

// Writes NUMBERS to OUT in FORM with plain rounding, for comparison: the scale of a group follows
// from its largest number, without a search.
void gguf_round(GgufForm form, std::span<const float> numbers, std::span<std::byte> out);

// Returns true if gguf_quantize() writes FORM.
[[nodiscard]] bool is_written(GgufForm form);

}  // namespace dslaunch::storage
