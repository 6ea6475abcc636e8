#include "runtime/data/batch_types.h"

#include <cstring>
#include <type_traits>

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include "base/check.h"

namespace dslaunch::runtime {
namespace {

// Calls use(From{}) with the C++ type of DTYPE.
template <typename Use>
decltype(auto) with_type(DType dtype, Use&& use) {
    switch (dtype) {
        case DType::kBool:
            return use(bool{});
        case DType::kU8:
            return use(uint8_t{});
        case DType::kI8:
            return use(int8_t{});
        case DType::kI16:
            return use(int16_t{});
        case DType::kU16:
            return use(uint16_t{});
        case DType::kF16:
            return use(c10::Half{});
        case DType::kBF16:
            return use(c10::BFloat16{});
        case DType::kI32:
            return use(int32_t{});
        case DType::kU32:
            return use(uint32_t{});
        case DType::kF32:
            return use(float{});
        case DType::kF64:
            return use(double{});
        case DType::kC64:
            break;  // batch_dtype() has none for it
        case DType::kI64:
            return use(int64_t{});
        case DType::kU64:
            return use(uint64_t{});
    }
    DSL_CHECK(false, "dtype {}", static_cast<int>(dtype));
    return use(bool{});
}

// The file gives no alignment, so each element is loaded by memcpy (a plain load once compiled).
template <typename From>
From load(const std::byte* from) {
    if constexpr (std::is_same_v<From, bool>) {
        return *from != std::byte{0};  // a byte other than 0 and 1 is no bool to the compiler
    } else {
        From value;
        std::memcpy(&value, from, sizeof(From));
        return value;
    }
}

template <typename From, typename To>
void convert(std::span<const std::byte> from, To* into) {
    if constexpr (std::is_same_v<From, To> && !std::is_same_v<From, bool>) {
        std::memcpy(into, from.data(), from.size());
    } else {
        const size_t count = from.size() / sizeof(From);
        for (size_t i = 0; i < count; ++i)
            // NOLINTNEXTLINE(bugprone-signed-char-misuse): a number of 8 bits, no letter
            into[i] = static_cast<To>(load<From>(from.data() + i * sizeof(From)));
    }
}

}  // namespace

std::optional<c10::ScalarType> batch_dtype(DType dtype) {
    switch (dtype) {
        case DType::kBool:
            return c10::ScalarType::Bool;
        case DType::kC64:
        case DType::kU64:
            return std::nullopt;
        case DType::kF16:
        case DType::kBF16:
        case DType::kF32:
        case DType::kF64:
            return c10::ScalarType::Float;
        default:
            return c10::ScalarType::Long;
    }
}

void convert_elements(DType dtype, std::span<const std::byte> from, c10::ScalarType to,
                      std::byte* into) {
    if (from.empty()) return;
    with_type(dtype, [&](auto zero) {
        using From = decltype(zero);
        if (to == c10::ScalarType::Float)
            convert<From>(from, reinterpret_cast<float*>(into));
        else if (to == c10::ScalarType::Long)
            convert<From>(from, reinterpret_cast<int64_t*>(into));
        else
            convert<From>(from, reinterpret_cast<bool*>(into));
    });
}

int64_t integer_at(DType dtype, std::span<const std::byte> from, int64_t index) {
    DSL_CHECK(batch_dtype(dtype) == c10::ScalarType::Long, "{} is no integer", dtype_name(dtype));
    return with_type(dtype, [&](auto zero) {
        using From = decltype(zero);
        const size_t byte = static_cast<size_t>(index) * sizeof(From);
        return static_cast<int64_t>(load<From>(from.data() + byte));
    });
}

}  // namespace dslaunch::runtime
