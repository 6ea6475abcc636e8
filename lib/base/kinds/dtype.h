// Element types of tensors. Files, plans and data use the same enum. The types have the names that
// safetensors files use. Threads: pure functions.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

namespace dslaunch {

// The element types, in the order of detail::kDTypeRows.
enum class DType : uint8_t {
    kBool,
    kU8,
    kI8,
    kI16,
    kU16,
    kF16,
    kBF16,
    kI32,
    kU32,
    kF32,
    kC64,
    kF64,
    kI64,
    kU64,
    kF8E4M3  // 4 bits of exponent, 3 of mantissa, no infinity ("e4m3fn")
};

namespace detail {
// The name of a type in safetensors files, and the bytes of an element.
struct DTypeRow {
    std::string_view name;
    int64_t bytes;
};
inline constexpr std::array<DTypeRow, 15> kDTypeRows{{{"BOOL", 1},
                                                      {"U8", 1},
                                                      {"I8", 1},
                                                      {"I16", 2},
                                                      {"U16", 2},
                                                      {"F16", 2},
                                                      {"BF16", 2},
                                                      {"I32", 4},
                                                      {"U32", 4},
                                                      {"F32", 4},
                                                      {"C64", 8},
                                                      {"F64", 8},
                                                      {"I64", 8},
                                                      {"U64", 8},
                                                      {"F8_E4M3", 1}}};
}  // namespace detail

// Returns the size of one element in bytes.
[[nodiscard]] constexpr int64_t dtype_bytes(DType dtype) {
    return detail::kDTypeRows[static_cast<size_t>(dtype)].bytes;
}

// Returns "F32", "BF16", …
[[nodiscard]] constexpr std::string_view dtype_name(DType dtype) {
    return detail::kDTypeRows[static_cast<size_t>(dtype)].name;
}

// Returns the dtype with that exact name, or nothing.
[[nodiscard]] constexpr std::optional<DType> dtype_from_name(std::string_view name) {
    for (size_t i = 0; i < detail::kDTypeRows.size(); ++i)
        if (detail::kDTypeRows[i].name == name) return static_cast<DType>(i);
    return std::nullopt;
}

// Returns true for the floating-point types of 16 bits.
[[nodiscard]] constexpr bool is_half(DType dtype) {
    return dtype == DType::kF16 || dtype == DType::kBF16;
}

}  // namespace dslaunch
