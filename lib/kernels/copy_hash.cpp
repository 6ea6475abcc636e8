#include "kernels/copy_hash.h"

#include <cstring>

#include "base/check.h"

namespace dslaunch::kernels {

namespace {

template <typename Element>
uint64_t hash_elements(const std::byte* values, size_t numel, uint32_t position) {
    uint64_t hash = 0;
    for (size_t i = 0; i < numel; ++i, ++position) {
        Element element;
        std::memcpy(&element, values + i * sizeof(Element), sizeof element);
        // Both numbers depend on the position, so the sum changes if two elements change places.
        // `factor` is odd and below 2^32, so different elements at one position have different
        // products.
        const uint32_t shifted = element + position * 0x9E3779B1U;
        const uint32_t factor = (position * 0x85EBCA77U) | 1U;
        hash += static_cast<uint64_t>(shifted) * factor;
    }
    return hash;
}

}  // namespace

uint64_t copy_hash(std::span<const std::byte> values, int64_t element_bytes, int64_t first) {
    DSL_CHECK(element_bytes == 2 || element_bytes == 4, "elements of {} bytes", element_bytes);
    const size_t numel = values.size() / static_cast<size_t>(element_bytes);
    DSL_CHECK(numel * static_cast<size_t>(element_bytes) == values.size(),
              "{} bytes are no whole number of elements of {} bytes", values.size(), element_bytes);
    const auto position = static_cast<uint32_t>(first);
    return element_bytes == 2 ? hash_elements<uint16_t>(values.data(), numel, position)
                              : hash_elements<uint32_t>(values.data(), numel, position);
}

}  // namespace dslaunch::kernels
