#include "storage/gguf/block_codes.h"

#include <cstring>

#include "base/check.h"

namespace dslaunch::storage {
namespace {

// The numbers that the 16 codes of IQ4_NL and IQ4_XS stand for.
constexpr int16_t kTable[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                1,    13,   25,  38,  53,  69,  89,  113};

constexpr size_t kHalfShort = kShortBlock / 2;

unsigned byte_at(const std::byte* from, size_t index) {
    return std::to_integer<unsigned>(from[index]);
}

uint16_t half_at(const std::byte* from) {
    return static_cast<uint16_t>(byte_at(from, 0) | byte_at(from, 1) << 8);
}

void put_half(std::byte* to, uint16_t half) {
    to[0] = static_cast<std::byte>(half & 0xFFU);
    to[1] = static_cast<std::byte>(half >> 8);
}

// Reads the codes of a short block. First come the lower four bits of all bytes at NIBBLES, then
// the upper four bits. BITS has the fifth bit of each code; null if codes have 4 bits.
void unpack_short(const std::byte* nibbles, const std::byte* bits, int offset, BlockCodes& codes) {
    for (size_t i = 0; i < kShortBlock; ++i) {
        const unsigned byte = byte_at(nibbles, i % kHalfShort);
        unsigned code = i < kHalfShort ? byte & 15U : byte >> 4;
        if (bits != nullptr) code |= (byte_at(bits, i / 8) >> (i % 8) & 1U) << 4;
        codes.codes[i] = static_cast<int16_t>(static_cast<int>(code) - offset);
    }
}

void pack_short(const BlockCodes& codes, int offset, std::byte* bits, std::byte* nibbles) {
    const auto code = [&](size_t i) { return static_cast<unsigned>(codes.codes[i] + offset); };
    for (size_t i = 0; i < kHalfShort; ++i)
        nibbles[i] = static_cast<std::byte>((code(i) & 15U) | (code(i + kHalfShort) & 15U) << 4);
    if (bits == nullptr) return;
    for (size_t byte = 0; byte < 4; ++byte) {
        unsigned all = 0;
        for (size_t i = 0; i < 8; ++i) all |= (code(byte * 8 + i) >> 4) << i;
        bits[byte] = static_cast<std::byte>(all);
    }
}

// Reads eight scales and eight minimums of 6 bits from 12 bytes. Bytes 0 to 3 have scales 0 to 3,
// and bytes 4 to 7 have minimums 0 to 3, each in the lower 6 bits. The upper 2 bits of these bytes
// are the upper bits of scales and minimums 4 to 7, whose lower 4 bits are in bytes 8 to 11.
void unpack_pairs(const std::byte* from, BlockCodes& codes) {
    for (size_t i = 0; i < 4; ++i) {
        const unsigned scale = byte_at(from, i), minimum = byte_at(from, 4 + i);
        const unsigned both = byte_at(from, 8 + i);
        codes.scales[i] = static_cast<int16_t>(scale & 63U);
        codes.minimums[i] = static_cast<int16_t>(minimum & 63U);
        codes.scales[4 + i] = static_cast<int16_t>((both & 15U) | (scale >> 6) << 4);
        codes.minimums[4 + i] = static_cast<int16_t>(both >> 4 | (minimum >> 6) << 4);
    }
}

void pack_pairs(const BlockCodes& codes, std::byte* to) {
    for (size_t i = 0; i < 4; ++i) {
        const auto late_scale = static_cast<unsigned>(codes.scales[4 + i]);
        const auto late_minimum = static_cast<unsigned>(codes.minimums[4 + i]);
        to[i] =
            static_cast<std::byte>(static_cast<unsigned>(codes.scales[i]) | late_scale >> 4 << 6);
        to[4 + i] = static_cast<std::byte>(static_cast<unsigned>(codes.minimums[i]) |
                                           late_minimum >> 4 << 6);
        to[8 + i] = static_cast<std::byte>((late_scale & 15U) | (late_minimum & 15U) << 4);
    }
}

// Reads sixteen scales of 6 bits from 12 bytes: the lower four bits of scale i are in byte i % 8,
// its upper two in byte 8 + i % 4.
void unpack_sixteen(const std::byte* from, BlockCodes& codes) {
    for (size_t i = 0; i < 16; ++i) {
        const unsigned low = byte_at(from, i % 8) >> (i / 8 * 4) & 15U;
        const unsigned high = byte_at(from, 8 + i % 4) >> (i / 4 * 2) & 3U;
        codes.scales[i] = static_cast<int16_t>(static_cast<int>(low | high << 4) - 32);
    }
}

void pack_sixteen(const BlockCodes& codes, std::byte* to) {
    unsigned bytes[12] = {};
    for (size_t i = 0; i < 16; ++i) {
        const auto scale = static_cast<unsigned>(codes.scales[i] + 32);
        bytes[i % 8] |= (scale & 15U) << (i / 8 * 4);
        bytes[8 + i % 4] |= scale >> 4 << (i / 4 * 2);
    }
    for (size_t i = 0; i < 12; ++i) to[i] = static_cast<std::byte>(bytes[i]);
}

// Long blocks store the code of element i in pieces. Each function returns the place of a piece: a
// byte, and how far the piece is shifted in it.
struct Piece {
    size_t byte;
    unsigned shift;
};

// Two bits per element. The elements i, i + 32, i + 64 and i + 96 of 128 share a byte.
Piece two_bits(size_t i) {
    return {i / 128 * 32 + i % 32, static_cast<unsigned>(i / 32 % 4 * 2)};
}

// One bit per element. The eight elements i, i + 32, …, i + 224 share a byte.
Piece one_bit(size_t i) {
    return {i % 32, static_cast<unsigned>(i / 32)};
}

// Four bits per element. The elements i and i + 32 of 64 share a byte.
Piece four_bits(size_t i) {
    return {i / 64 * 32 + i % 32, static_cast<unsigned>(i / 32 % 2 * 4)};
}

// Four bits per element. The elements i and i + 64 of 128 share a byte.
Piece four_bits_far(size_t i) {
    return {i / 128 * 64 + i % 64, static_cast<unsigned>(i / 64 % 2 * 4)};
}

unsigned read(const std::byte* from, Piece piece, unsigned mask) {
    return byte_at(from, piece.byte) >> piece.shift & mask;
}

void add_to(std::byte* to, Piece piece, unsigned bits) {
    to[piece.byte] |= static_cast<std::byte>(bits << piece.shift);
}

// The offsets of the parts of long blocks.
namespace q2k {
constexpr size_t kCodes = 16, kScale = 80, kMinimum = 82;
}
namespace q3k {
constexpr size_t kCodes = 32, kScales = 96, kScale = 108;
}
namespace q4k {
constexpr size_t kMinimum = 2, kScales = 4, kCodes = 16;
}
namespace q5k {
constexpr size_t kBits = 16, kCodes = 48;
}
namespace q6k {
constexpr size_t kBits = 128, kScales = 192, kScale = 208;
}
namespace iq4 {
constexpr size_t kHigh = 2, kLow = 4, kCodes = 8;
}

void unpack_long(GgufForm form, const std::byte* block, BlockCodes& codes) {
    const auto set = [&](size_t i, unsigned code, int offset) {
        codes.codes[i] = static_cast<int16_t>(static_cast<int>(code) - offset);
    };
    switch (form) {
        case GgufForm::kQ2K:
            codes.scale = half_at(block + q2k::kScale);
            codes.minimum = half_at(block + q2k::kMinimum);
            for (size_t g = 0; g < 16; ++g) {
                codes.scales[g] = static_cast<int16_t>(byte_at(block, g) & 15U);
                codes.minimums[g] = static_cast<int16_t>(byte_at(block, g) >> 4);
            }
            for (size_t i = 0; i < kLongBlock; ++i)
                set(i, read(block + q2k::kCodes, two_bits(i), 3), 0);
            return;
        case GgufForm::kQ3K:
            codes.scale = half_at(block + q3k::kScale);
            unpack_sixteen(block + q3k::kScales, codes);
            for (size_t i = 0; i < kLongBlock; ++i)
                set(i, read(block + q3k::kCodes, two_bits(i), 3) | read(block, one_bit(i), 1) << 2,
                    4);
            return;
        case GgufForm::kQ4K:
        case GgufForm::kQ5K: {
            const bool is_five = form == GgufForm::kQ5K;
            codes.scale = half_at(block);
            codes.minimum = half_at(block + q4k::kMinimum);
            unpack_pairs(block + q4k::kScales, codes);
            const std::byte* const nibbles = block + (is_five ? q5k::kCodes : q4k::kCodes);
            for (size_t i = 0; i < kLongBlock; ++i) {
                const unsigned bit = is_five ? read(block + q5k::kBits, one_bit(i), 1) << 4 : 0;
                set(i, read(nibbles, four_bits(i), 15) | bit, 0);
            }
            return;
        }
        case GgufForm::kQ6K:
            codes.scale = half_at(block + q6k::kScale);
            for (size_t g = 0; g < 16; ++g)
                codes.scales[g] =
                    static_cast<int8_t>(static_cast<uint8_t>(byte_at(block, q6k::kScales + g)));
            for (size_t i = 0; i < kLongBlock; ++i)
                set(i,
                    read(block, four_bits_far(i), 15) | read(block + q6k::kBits, two_bits(i), 3)
                                                            << 4,
                    32);
            return;
        default:
            break;
    }
    DSL_CHECK(form == GgufForm::kIq4Xs, "form {}", facts_of(form).name);
    codes.scale = half_at(block);
    const unsigned high = half_at(block + iq4::kHigh);
    for (size_t g = 0; g < 8; ++g) {
        const unsigned low = byte_at(block, iq4::kLow + g / 2) >> (g % 2 * 4) & 15U;
        codes.scales[g] =
            static_cast<int16_t>(static_cast<int>(low | (high >> (2 * g) & 3U) << 4) - 32);
        for (size_t i = 0; i < kShortBlock; ++i) {
            const unsigned byte = byte_at(block, iq4::kCodes + g * kHalfShort + i % kHalfShort);
            codes.codes[g * kShortBlock + i] = kTable[i < kHalfShort ? byte & 15U : byte >> 4];
        }
    }
}

void pack_long(GgufForm form, const BlockCodes& codes, std::byte* block) {
    std::memset(block, 0, static_cast<size_t>(facts_of(form).bytes));
    const auto code = [&](size_t i, int offset) {
        return static_cast<unsigned>(codes.codes[i] + offset);
    };
    switch (form) {
        case GgufForm::kQ2K:
            put_half(block + q2k::kScale, codes.scale);
            put_half(block + q2k::kMinimum, codes.minimum);
            for (size_t g = 0; g < 16; ++g)
                block[g] = static_cast<std::byte>(codes.scales[g] | codes.minimums[g] << 4);
            for (size_t i = 0; i < kLongBlock; ++i)
                add_to(block + q2k::kCodes, two_bits(i), code(i, 0));
            return;
        case GgufForm::kQ3K:
            put_half(block + q3k::kScale, codes.scale);
            pack_sixteen(codes, block + q3k::kScales);
            for (size_t i = 0; i < kLongBlock; ++i) {
                add_to(block + q3k::kCodes, two_bits(i), code(i, 4) & 3U);
                add_to(block, one_bit(i), code(i, 4) >> 2);
            }
            return;
        case GgufForm::kQ4K:
        case GgufForm::kQ5K: {
            const bool is_five = form == GgufForm::kQ5K;
            put_half(block, codes.scale);
            put_half(block + q4k::kMinimum, codes.minimum);
            pack_pairs(codes, block + q4k::kScales);
            std::byte* const nibbles = block + (is_five ? q5k::kCodes : q4k::kCodes);
            for (size_t i = 0; i < kLongBlock; ++i) {
                add_to(nibbles, four_bits(i), code(i, 0) & 15U);
                if (is_five) add_to(block + q5k::kBits, one_bit(i), code(i, 0) >> 4);
            }
            return;
        }
        default:
            break;
    }
    DSL_CHECK(form == GgufForm::kQ6K, "form {} is not written", facts_of(form).name);
    put_half(block + q6k::kScale, codes.scale);
    for (size_t g = 0; g < 16; ++g)
        block[q6k::kScales + g] = static_cast<std::byte>(codes.scales[g] & 0xFF);
    for (size_t i = 0; i < kLongBlock; ++i) {
        add_to(block, four_bits_far(i), code(i, 32) & 15U);
        add_to(block + q6k::kBits, two_bits(i), code(i, 32) >> 4);
    }
}

}  // namespace

BlockBounds bounds_of(GgufForm form) {
    switch (form) {
        case GgufForm::kQ4_0:
            return {kShortBlock, -8, 7, false, 0, 0, 0};
        case GgufForm::kQ4_1:
            return {kShortBlock, 0, 15, true, 0, 0, 0};
        case GgufForm::kQ5_0:
            return {kShortBlock, -16, 15, false, 0, 0, 0};
        case GgufForm::kQ5_1:
            return {kShortBlock, 0, 31, true, 0, 0, 0};
        case GgufForm::kQ8_0:
            return {kShortBlock, -128, 127, false, 0, 0, 0};
        case GgufForm::kQ2K:
            return {16, 0, 3, true, 0, 15, 15};
        case GgufForm::kQ3K:
            return {16, -4, 3, false, -32, 31, 0};
        case GgufForm::kQ4K:
            return {32, 0, 15, true, 0, 63, 63};
        case GgufForm::kQ5K:
            return {32, 0, 31, true, 0, 63, 63};
        case GgufForm::kQ6K:
            return {16, -32, 31, false, -128, 127, 0};
        default:
            break;
    }
    DSL_CHECK(false, "form {} has no bounds", facts_of(form).name);
    return {};
}

void unpack_block(GgufForm form, const std::byte* block, BlockCodes& codes) {
    if (facts_of(form).numel == kLongBlock) {
        unpack_long(form, block, codes);
        return;
    }
    codes.scale = half_at(block);
    switch (form) {
        case GgufForm::kQ4_0:
            unpack_short(block + 2, nullptr, 8, codes);
            return;
        case GgufForm::kQ4_1:
            codes.minimum = half_at(block + 2);
            unpack_short(block + 4, nullptr, 0, codes);
            return;
        case GgufForm::kQ5_0:
            unpack_short(block + 6, block + 2, 16, codes);
            return;
        case GgufForm::kQ5_1:
            codes.minimum = half_at(block + 2);
            unpack_short(block + 8, block + 4, 0, codes);
            return;
        case GgufForm::kQ8_0:
            for (size_t i = 0; i < kShortBlock; ++i)
                codes.codes[i] = static_cast<int8_t>(static_cast<uint8_t>(byte_at(block, 2 + i)));
            return;
        default:
            break;
    }
    DSL_CHECK(form == GgufForm::kIq4Nl, "form {} has no blocks", facts_of(form).name);
    unpack_short(block + 2, nullptr, 0, codes);
    for (size_t i = 0; i < kShortBlock; ++i)
        codes.codes[i] = kTable[static_cast<size_t>(codes.codes[i])];
}

void pack_block(GgufForm form, const BlockCodes& codes, std::byte* block) {
    if (facts_of(form).numel == kLongBlock) {
        pack_long(form, codes, block);
        return;
    }
    put_half(block, codes.scale);
    switch (form) {
        case GgufForm::kQ4_0:
            pack_short(codes, 8, nullptr, block + 2);
            return;
        case GgufForm::kQ4_1:
            put_half(block + 2, codes.minimum);
            pack_short(codes, 0, nullptr, block + 4);
            return;
        case GgufForm::kQ5_0:
            pack_short(codes, 16, block + 2, block + 6);
            return;
        case GgufForm::kQ5_1:
            put_half(block + 2, codes.minimum);
            pack_short(codes, 0, block + 4, block + 8);
            return;
        default:
            break;
    }
    DSL_CHECK(form == GgufForm::kQ8_0, "form {} is not written", facts_of(form).name);
    for (size_t i = 0; i < kShortBlock; ++i)
        block[2 + i] = static_cast<std::byte>(codes.codes[i] & 0xFF);
}

}  // namespace dslaunch::storage
