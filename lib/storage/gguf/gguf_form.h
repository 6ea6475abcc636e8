// The forms in which a GGUF file stores the numbers of a tensor: plain floats, or blocks of 32 or
// 256 numbers with common scales. Source of the numbers and sizes: ggml. Data path: gguf_file.h ->
// [here] -> block_numbers.h. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace dslaunch::storage {

// The values are the numbers in the file.
enum class GgufForm : uint32_t {
    kF32 = 0,
    kF16 = 1,
    kQ4_0 = 2,
    kQ4_1 = 3,
    kQ5_0 = 6,
    kQ5_1 = 7,
    kQ8_0 = 8,
    kQ2K = 10,
    kQ3K = 11,
    kQ4K = 12,
    kQ5K = 13,
    kQ6K = 14,
    kIq4Nl = 20,
    kIq4Xs = 23,
    kF64 = 28,
    kBf16 = 30,
};

// The numbers of elements in a long block (in IQ4_XS and the forms that end in K) and a short one.
inline constexpr int64_t kLongBlock = 256;
inline constexpr int64_t kShortBlock = 32;

// Facts about a form.
struct GgufFormFacts {
    GgufForm form;
    const char* name;  // as ggml prints it: "Q4_K"
    int64_t numel;     // elements in a block
    int64_t bytes;     // size of a block
};

// Returns the facts of FORM.
[[nodiscard]] const GgufFormFacts& facts_of(GgufForm form);
// Returns the form with the number NUMBER in a file; nothing if this version does not read it.
[[nodiscard]] std::optional<GgufForm> gguf_form_of(uint32_t number);
// Returns ggml's name for the number NUMBER, also if this version does not read the form.
[[nodiscard]] std::string_view gguf_form_name(uint32_t number);

// Returns true for blocks of fewer bits, and false for plain floats.
[[nodiscard]] bool is_quantized(GgufForm form);

// Returns the bytes of NUMEL elements. REQUIRES: NUMEL is a multiple of the block.
[[nodiscard]] int64_t gguf_bytes(GgufForm form, int64_t numel);

}  // namespace dslaunch::storage
