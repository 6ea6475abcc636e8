// Codes of 1 to 8 bits, stored without gaps in words of 32 bits. Bits are counted from the lowest
// bit of the first word on; code i has the bits [i * bits, (i + 1) * bits). compressed-tensors and
// GPTQ use this layout. Threads: pure functions.
#pragma once

#include <cstdint>

namespace dslaunch::storage {

// Returns the number of words for CODES codes of BITS.
[[nodiscard]] constexpr int64_t packed_words(int64_t codes, int bits) {
    return (codes * bits + 31) / 32;
}

// Returns code INDEX. WORD(i) returns word i.
template <typename Word>
[[nodiscard]] uint32_t packed_code(int bits, int64_t index, const Word& word) {
    const int64_t begin = index * bits;
    const int64_t first = begin / 32;
    const auto shift = static_cast<uint32_t>(begin % 32);
    uint32_t code = word(first) >> shift;
    const uint32_t had = 32 - shift;
    if (had < static_cast<uint32_t>(bits)) code |= word(first + 1) << had;
    return code & ((1U << bits) - 1);
}

// Adds CODE as code INDEX. WORD(i) returns a reference to word i, which was 0 at first. REQUIRES:
// CODE has at most BITS bits.
template <typename Word>
void pack_code(int bits, int64_t index, uint32_t code, const Word& word) {
    const int64_t begin = index * bits;
    const int64_t first = begin / 32;
    const auto shift = static_cast<uint32_t>(begin % 32);
    word(first) |= code << shift;
    const uint32_t had = 32 - shift;
    if (had < static_cast<uint32_t>(bits)) word(first + 1) |= code >> had;
}

}  // namespace dslaunch::storage
