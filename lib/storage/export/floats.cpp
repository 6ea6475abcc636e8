#include "storage/export/floats.h"

#include <bit>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "base/float8.h"
#include "base/half_bits.h"

namespace dslaunch::storage {
namespace {

// Truncates VALUE to a float whose last bit is set if something was lost. Rounding this float to
// fewer bits gives the same result as rounding VALUE directly.
float cut_to_odd(double value) {
    auto cut = static_cast<float>(value);
    if (std::isnan(value) || static_cast<double>(cut) == value) return cut;
    auto bits = std::bit_cast<uint32_t>(cut);
    if (std::fabs(static_cast<double>(cut)) > std::fabs(value)) --bits;
    return std::bit_cast<float>(bits | 1U);
}

template <typename Element, typename Value>
void read(std::span<const std::byte> bytes, std::vector<double>& values, const Value& value) {
    DSL_CHECK(bytes.size() % sizeof(Element) == 0,
              "{} bytes are not a whole number of elements of {} bytes", bytes.size(),
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
            return read<uint16_t>(bytes, values, fp32_of_fp16);
        case DType::kBF16:
            return read<uint16_t>(bytes, values, fp32_of_bf16);
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
        case DType::kF8E4M3:
            return read<uint8_t>(bytes, values, fp32_of_e4m3);
    }
    DSL_CHECK(false, "the dtype number {} is unknown", static_cast<int>(dtype));
}

int64_t from_doubles(std::span<const double> values, DType dtype, std::vector<std::byte>& out) {
    switch (dtype) {
        case DType::kF16:
            return write<uint16_t>(
                values, out, [](double value) { return fp16_of(cut_to_odd(value)); }, fp32_of_fp16);
        case DType::kBF16:
            return write<uint16_t>(
                values, out, [](double value) { return bf16_of(cut_to_odd(value)); }, fp32_of_bf16);
        case DType::kF32:
            return write<float>(
                values, out, [](double value) { return static_cast<float>(value); },
                [](float value) { return static_cast<double>(value); });
        case DType::kF64:
            return write<double>(
                values, out, [](double value) { return value; },
                [](double value) { return value; });
        default:
            DSL_CHECK(false, "{} is not a floating-point type", dtype_name(dtype));
    }
    return -1;
}

}  // namespace dslaunch::storage
