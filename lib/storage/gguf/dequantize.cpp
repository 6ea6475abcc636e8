// Makes numbers from blocks.
#include <cstring>

#include "base/check.h"
#include "base/half_bits.h"
#include "storage/gguf/block_codes.h"
#include "storage/gguf/block_numbers.h"

namespace dslaunch::storage {
namespace {

template <typename T>
T number_at(const std::byte* from, size_t index) {
    T number{};
    std::memcpy(&number, from + index * sizeof(T), sizeof number);
    return number;
}

int64_t group_of(GgufForm form) {
    if (form == GgufForm::kIq4Xs || form == GgufForm::kIq4Nl) return kShortBlock;
    return bounds_of(form).group;
}

bool has_minimum(GgufForm form) {
    return form != GgufForm::kIq4Xs && form != GgufForm::kIq4Nl && bounds_of(form).has_minimum;
}

// Writes the numbers of a block to OUT. Rounds in the same order as ggml.
void numbers_of(GgufForm form, const BlockCodes& codes, float* out) {
    const float scale = fp32_of_fp16(codes.scale), minimum = fp32_of_fp16(codes.minimum);
    const auto group = static_cast<size_t>(group_of(form));
    const auto numel = static_cast<size_t>(facts_of(form).numel);
    const bool has_minimums = has_minimum(form);
    if (numel == kShortBlock) {
        for (size_t i = 0; i < numel; ++i) out[i] = scale * static_cast<float>(codes.codes[i]);
        for (size_t i = 0; has_minimums && i < numel; ++i) out[i] += minimum;
        return;
    }
    for (size_t g = 0; g * group < numel; ++g) {
        const float own = scale * static_cast<float>(codes.scales[g]);
        float* const to = out + g * group;
        for (size_t i = 0; i < group; ++i)
            to[i] = own * static_cast<float>(codes.codes[g * group + i]);
        if (!has_minimums) continue;
        const float less = minimum * static_cast<float>(codes.minimums[g]);
        for (size_t i = 0; i < group; ++i) to[i] -= less;
    }
}

}  // namespace

void gguf_dequantize(GgufForm form, std::span<const std::byte> bytes, std::span<float> out) {
    DSL_CHECK(std::ssize(bytes) == gguf_bytes(form, std::ssize(out)), "{} bytes for {} numbers",
              bytes.size(), out.size());
    const std::byte* const from = bytes.data();
    switch (form) {
        case GgufForm::kF32:
            if (!out.empty()) std::memcpy(out.data(), from, bytes.size());
            return;
        case GgufForm::kF16:
            for (size_t i = 0; i < out.size(); ++i)
                out[i] = fp32_of_fp16(number_at<uint16_t>(from, i));
            return;
        case GgufForm::kBf16:
            for (size_t i = 0; i < out.size(); ++i)
                out[i] = fp32_of_bf16(number_at<uint16_t>(from, i));
            return;
        case GgufForm::kF64:
            for (size_t i = 0; i < out.size(); ++i)
                out[i] = static_cast<float>(number_at<double>(from, i));
            return;
        default:
            break;
    }
    const GgufFormFacts& facts = facts_of(form);
    BlockCodes codes;
    for (size_t i = 0; i * static_cast<size_t>(facts.numel) < out.size(); ++i) {
        unpack_block(form, from + i * static_cast<size_t>(facts.bytes), codes);
        numbers_of(form, codes, out.data() + i * static_cast<size_t>(facts.numel));
    }
}

}  // namespace dslaunch::storage
