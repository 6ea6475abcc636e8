#include "storage/export/floats.h"

#include <bit>
#include <cmath>
#include <cstring>

#include "base/check.h"

namespace dslaunch::storage {
namespace {

double half_value(uint16_t bits) {
    const uint32_t sign = (bits & 0x8000U) << 16;
    const uint32_t magnitude = (bits & 0x7fffU) << 13;
    if (magnitude >= 0x0f800000U)  // infinity, NaN
        return std::bit_cast<float>(sign | magnitude | 0x7f800000U);
    // The exponent's bias of half is less by 112; subnormals come out right as well.
    return std::bit_cast<float>(sign | magnitude) * 0x1p112F;
}

double bfloat_value(uint16_t bits) {
    return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

uint16_t half_bits(float value) {
    const auto bits = std::bit_cast<uint32_t>(value);
    const uint32_t sign = bits >> 16 & 0x8000U;
    const uint32_t magnitude = bits & 0x7fffffffU;
    if (magnitude > 0x7f800000U) return static_cast<uint16_t>(sign | 0x7e00U);
    if (magnitude >= 0x477ff000U) return static_cast<uint16_t>(sign | 0x7c00U);  // from 65520 on
    if (magnitude < 0x38800000U) {                                               // below 2^-14
        const float units = std::bit_cast<float>(magnitude) * 0x1p24F;
        return static_cast<uint16_t>(sign | static_cast<uint32_t>(std::lrintf(units)));
    }
    const uint32_t even = magnitude + 0xfffU + (magnitude >> 13 & 1U);
    return static_cast<uint16_t>(sign | (even - 0x38000000U) >> 13);
}

uint16_t bfloat_bits(float value) {
    const auto bits = std::bit_cast<uint32_t>(value);
    if (std::isnan(value)) return static_cast<uint16_t>((bits >> 16 & 0x8000U) | 0x7fc0U);
    return static_cast<uint16_t>((bits + 0x7fffU + (bits >> 16 & 1U)) >> 16);
}

// VALUE cut off to a float whose last bit tells whether something was: rounding it once more to
// fewer bits gives what rounding VALUE at once does.
float cut_to_odd(double value) {
    auto cut = static_cast<float>(value);
    if (std::isnan(value) || static_cast<double>(cut) == value) return cut;
    auto bits = std::bit_cast<uint32_t>(cut);
    if (std::fabs(static_cast<double>(cut)) > std::fabs(value)) --bits;
    return std::bit_cast<float>(bits | 1U);
}

template <typename Element, typename Value>
void read(std::span<const std::byte> bytes, std::vector<double>& values, const Value& value) {
    DSL_CHECK(bytes.size() % sizeof(Element) == 0, "{} bytes of elements of {}", bytes.size(),
              sizeof(Element));
    values.resize(bytes.size() / sizeof(Element));
    for (size_t i = 0; i < values.size(); ++i) {
        Element element;
        std::memcpy(&element, bytes.data() + i * sizeof(Element), sizeof(Element));
        values[i] = static_cast<double>(value(element));
    }
}

template <typename Element>
void read_plain(std::span<const std::byte> bytes, std::vector<double>& values) {
    read<Element>(bytes, values, [](Element element) { return element; });
}

template <typename Element, typename Bits, typename ValueOf>
int64_t write(std::span<const double> values, std::vector<std::byte>& out, const Bits& bits,
              const ValueOf& value_of) {
    out.resize(values.size() * sizeof(Element));
    int64_t overflow = -1;
    for (size_t i = 0; i < values.size(); ++i) {
        const Element element = bits(values[i]);
        if (overflow < 0 && std::isinf(value_of(element)) && std::isfinite(values[i]))
            overflow = static_cast<int64_t>(i);
        std::memcpy(out.data() + i * sizeof(Element), &element, sizeof(Element));
    }
    return overflow;
}

}  // namespace

bool is_floating(DType dtype) {
    return dtype == DType::kF16 || dtype == DType::kBF16 || dtype == DType::kF32 ||
           dtype == DType::kF64;
}

void to_doubles(std::span<const std::byte> bytes, DType dtype, std::vector<double>& values) {
    switch (dtype) {
        case DType::kBool:
        case DType::kU8:
            return read_plain<uint8_t>(bytes, values);
        case DType::kI8:
            return read_plain<int8_t>(bytes, values);
        case DType::kI16:
            return read_plain<int16_t>(bytes, values);
        case DType::kU16:
            return read_plain<uint16_t>(bytes, values);
        case DType::kF16:
            return read<uint16_t>(bytes, values, half_value);
        case DType::kBF16:
            return read<uint16_t>(bytes, values, bfloat_value);
        case DType::kI32:
            return read_plain<int32_t>(bytes, values);
        case DType::kU32:
            return read_plain<uint32_t>(bytes, values);
        case DType::kF32:
        case DType::kC64:
            return read_plain<float>(bytes, values);
        case DType::kF64:
            return read_plain<double>(bytes, values);
        case DType::kI64:
            return read_plain<int64_t>(bytes, values);
        case DType::kU64:
            return read_plain<uint64_t>(bytes, values);
    }
    DSL_CHECK(false, "a dtype of number {}", static_cast<int>(dtype));
}

int64_t from_doubles(std::span<const double> values, DType dtype, std::vector<std::byte>& out) {
    switch (dtype) {
        case DType::kF16:
            return write<uint16_t>(
                values, out, [](double value) { return half_bits(cut_to_odd(value)); }, half_value);
        case DType::kBF16:
            return write<uint16_t>(
                values, out, [](double value) { return bfloat_bits(cut_to_odd(value)); },
                bfloat_value);
        case DType::kF32:
            return write<float>(
                values, out, [](double value) { return static_cast<float>(value); },
                [](float value) { return static_cast<double>(value); });
        case DType::kF64:
            return write<double>(
                values, out, [](double value) { return value; },
                [](double value) { return value; });
        default:
            DSL_CHECK(false, "{} is no floating type", dtype_name(dtype));
    }
    return -1;
}

}  // namespace dslaunch::storage
