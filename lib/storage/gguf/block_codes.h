// A block of a GGUF form as integers: the codes of its numbers, the scales of its groups, and the
// common factors of these. Source of the layouts: ggml. Data path: bytes of a file <-> [here] <->
// block_numbers.h. Pure.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "storage/gguf/gguf_form.h"

namespace dslaunch::storage {

// The integers of one block. Element i of group g has the value
//     (scale * scales[g]) * codes[i] - (minimum * minimums[g])
// The last product is missing in forms without minimums. A short block is a single group whose
// element i has the value
//     scale * codes[i] + minimum
struct BlockCodes {
    uint16_t scale = 0;    // fp16
    uint16_t minimum = 0;  // fp16
    std::array<int16_t, 16> scales{};
    std::array<int16_t, 16> minimums{};
    std::array<int16_t, kLongBlock> codes{};
};

// The bounds of the integers in a form.
struct BlockBounds {
    int64_t group = 0;  // elements in a group
    int code_min = 0;
    int code_max = 0;
    bool has_minimum = false;
    int scale_min = 0;  // bound of the scales in long blocks
    int scale_max = 0;
    int minimum_max = 0;
};

// Returns the bounds of FORM. REQUIRES: FORM is quantized, and not one of the forms with a table.
[[nodiscard]] BlockBounds bounds_of(GgufForm form);

// Takes a block apart. REQUIRES: FORM is quantized; BLOCK has the bytes of one block.
void unpack_block(GgufForm form, const std::byte* block, BlockCodes& codes);
// Writes a block. REQUIRES: the integers are within bounds_of(FORM).
void pack_block(GgufForm form, const BlockCodes& codes, std::byte* block);

}  // namespace dslaunch::storage
