#include "storage/checkpoint/finite_scan.h"

#include <algorithm>
#include <cstring>

namespace dslaunch::storage {
namespace {

// A sum instead of a branch, so that it is vectorized.
template <typename Element>
bool any_with(std::span<const std::byte> bytes, uint64_t bits) {
    const auto exponent = static_cast<Element>(bits);
    Element found = 0;
    for (size_t at = 0; at + sizeof(Element) <= bytes.size(); at += sizeof(Element)) {
        Element element;
        std::memcpy(&element, bytes.data() + at, sizeof(element));
        found = static_cast<Element>(found | ((element & exponent) == exponent ? 1 : 0));
    }
    return found != 0;
}

}  // namespace

FiniteScan::FiniteScan(DType dtype) {
    switch (dtype) {
        case DType::kF16:
            exponent_ = 0x7C00;
            break;
        case DType::kBF16:
            exponent_ = 0x7F80;
            break;
        case DType::kC64:
            exponent_ = 0x7F80'0000;
            element_bytes_ = sizeof(float);  // of each part
            return;
        case DType::kF32:
            exponent_ = 0x7F80'0000;
            break;
        case DType::kF64:
            exponent_ = 0x7FF0'0000'0000'0000;
            break;
        default:
            return;
    }
    element_bytes_ = static_cast<size_t>(dtype_bytes(dtype));
}

void FiniteScan::look(std::span<const std::byte> elements) {
    if (element_bytes_ == 2) found_ = any_with<uint16_t>(elements, exponent_) || found_;
    if (element_bytes_ == 4) found_ = any_with<uint32_t>(elements, exponent_) || found_;
    if (element_bytes_ == 8) found_ = any_with<uint64_t>(elements, exponent_) || found_;
}

void FiniteScan::add(std::span<const std::byte> bytes) {
    if (element_bytes_ == 0) return;
    if (begun_bytes_ > 0) {
        const size_t taken = std::min(element_bytes_ - begun_bytes_, bytes.size());
        std::copy_n(bytes.begin(), taken, begun_.begin() + static_cast<ptrdiff_t>(begun_bytes_));
        begun_bytes_ += taken;
        bytes = bytes.subspan(taken);
        if (begun_bytes_ < element_bytes_) return;
        look(std::span(begun_).first(element_bytes_));
        begun_bytes_ = 0;
    }
    const size_t whole = bytes.size() / element_bytes_ * element_bytes_;
    look(bytes.first(whole));
    begun_bytes_ = bytes.size() - whole;
    std::copy_n(bytes.begin() + static_cast<ptrdiff_t>(whole), begun_bytes_, begun_.begin());
}

}  // namespace dslaunch::storage
