// Unpacks weights to plain numbers with a grid of threads. As in grid_kernels.h, the code compiles
// for GPUs and for processors. It gives the same bits as dequantize(); an output of 16 bits
// is rounded to nearest, ties to even. For each 4-bit weight in a group of 32, a thread reads 0.56
// bytes and writes 2 bytes of bf16. A thread writes eight neighbouring numbers of a row.
// Neighbouring threads write neighbouring rows of a panel, whose codes are next to each other, and
// the two halves of a warp write 32 bytes of each row.
#pragma once

#include <cstdint>

#include "base/half_bits.h"
#include "kernels/cuda/grid_arguments.h"
#include "kernels/cuda/grid_kernels.h"

// NOLINTBEGIN(misc-definitions-in-headers): as in element_rules.h.
namespace dslaunch::kernels {
namespace {

inline constexpr int64_t kPanelRows = 16;
inline constexpr int kEight = 8;  // numbers that a thread writes at once

// Eight numbers of a row, starting at input K, which is a multiple of eight. No group ends within
// them.
struct EightPlace {
    const uint8_t* panel;
    int64_t k;
    int64_t lane;   // the row's index in its panel
    int64_t group;  // the group of these numbers
};

// Returns the number of blocks of a grid that writes all of PACKED's numbers, eight per thread.
DSL_HOST_DEVICE inline int64_t blocks_over(const GridPacked& packed) {
    const int64_t panels = (packed.out + kPanelRows - 1) / kPanelRows;
    return blocks_over(panels * kPanelRows * ((packed.in + kEight - 1) / kEight) * kVector);
}

// Reads a 32-bit word of device memory. BYTES are aligned, because the sizes of panels and of their
// parts are multiples of 4 bytes.
DSL_HOST_DEVICE inline uint32_t word_at(const uint8_t* bytes) {
    return *reinterpret_cast<const uint32_t*>(bytes);
}

DSL_HOST_DEVICE inline float group_scale(const GridPacked& packed, const EightPlace& at) {
    const auto* const scales = reinterpret_cast<const uint16_t*>(at.panel + packed.scales_offset);
    return fp32_of_bf16(scales[at.group * kPanelRows + at.lane]);
}

DSL_HOST_DEVICE inline void eight_of_int8(const GridPacked& packed, const EightPlace& at,
                                          float* out) {
    const float step = group_scale(packed, at);
    for (int half = 0; half < 2; ++half) {
        const uint32_t codes = word_at(at.panel + (at.k / 4 + half) * 64 + at.lane * 4);
        for (int i = 0; i < 4; ++i)
            out[half * 4 + i] =
                step * (static_cast<float>(static_cast<int>(codes >> (8 * i) & 0xFFU)) - 128.0F);
    }
}

// Returns code I of eight: byte I of CODES has code I in its low half and code I + 4 in its high
// half.
DSL_HOST_DEVICE inline int nibble_of(uint32_t codes, int i) {
    return static_cast<int>(codes >> (i < 4 ? 8 * i : 8 * (i - 4) + 4) & 0xFU);
}

DSL_HOST_DEVICE inline uint32_t nibbles_at(const EightPlace& at) {
    return word_at(at.panel + at.k / 8 * 64 + at.lane * 4);
}

DSL_HOST_DEVICE inline void eight_of_nf4(const GridPacked& packed, const EightPlace& at,
                                         float* out) {
    const float scale = group_scale(packed, at);
    const uint32_t codes = nibbles_at(at);
    for (int i = 0; i < kEight; ++i) out[i] = scale * packed.numbers[nibble_of(codes, i)];
}

DSL_HOST_DEVICE inline void eight_of_int4(const GridPacked& packed, const EightPlace& at,
                                          float* out) {
    const uint8_t* const scales = at.panel + packed.scales_offset + at.group * 2 * kPanelRows;
    const auto* const factors = reinterpret_cast<const float*>(at.panel + packed.factors_offset);
    const float step = factors[at.lane] * static_cast<float>(scales[at.lane]);
    const float low =
        factors[kPanelRows + at.lane] * static_cast<float>(scales[kPanelRows + at.lane]);
    const uint32_t codes = nibbles_at(at);
    for (int i = 0; i < kEight; ++i) out[i] = step * static_cast<float>(nibble_of(codes, i)) - low;
}

// Writes N numbers (eight, or the rest of the row) to the dense weight, starting at element AT.
DSL_HOST_DEVICE inline void store_eight(const GridPacked& packed, const float* numbers, int64_t at,
                                        int n) {
    for (int begin = 0; begin < n; begin += kVector) {
        const int count = n - begin < kVector ? n - begin : kVector;
        Four four{};
        for (int i = 0; i < count; ++i) four.v[i] = numbers[begin + i];
        if (packed.halves) {
            store_half(four, static_cast<uint16_t*>(packed.dense) + at + begin, count, packed.bf16);
        } else {
            store(four, static_cast<float*>(packed.dense) + at + begin, count);
        }
    }
}

DSL_HOST_DEVICE inline void grid_unpack(const GridPacked& packed, const GridPlace& place) {
    const int64_t eights = (packed.in + kEight - 1) / kEight;  // in a row
    const int64_t panels = (packed.out + kPanelRows - 1) / kPanelRows;
    for (int64_t unit = place.thread; unit < panels * kPanelRows * eights; unit += place.threads) {
        const int64_t lane = unit % kPanelRows;
        const int64_t k = unit / kPanelRows % eights * kEight;
        const int64_t panel = unit / kPanelRows / eights;
        const int64_t row = panel * kPanelRows + lane;
        if (row >= packed.out) continue;
        const EightPlace at{packed.panels + panel * packed.panel_bytes, k, lane, k / packed.group};
        float numbers[kEight];
        if (packed.form == GridForm::kInt8) {
            eight_of_int8(packed, at, numbers);
        } else if (packed.form == GridForm::kInt4) {
            eight_of_int4(packed, at, numbers);
        } else {
            eight_of_nf4(packed, at, numbers);
        }
        const int64_t left = packed.in - k;
        store_eight(packed, numbers, row * packed.in + k,
                    left < kEight ? static_cast<int>(left) : kEight);
    }
}

}  // namespace
}  // namespace dslaunch::kernels
// NOLINTEND(misc-definitions-in-headers)
