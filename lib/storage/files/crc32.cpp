#include "storage/files/crc32.h"

#include <array>
#include <bit>
#include <cstring>

namespace dslaunch::storage {
namespace {

static_assert(std::endian::native == std::endian::little,
              "the rounds of eight bytes need a little-endian processor");
using Tables = std::array<std::array<uint32_t, 256>, 8>;

// tables[k][b]: the checksum of byte b followed by k zero bytes.
consteval Tables make_tables() {
    Tables tables{};
    for (uint32_t byte = 0; byte < 256; ++byte) {
        uint32_t value = byte;
        for (int bit = 0; bit < 8; ++bit)
            value = (value >> 1) ^ ((value & 1) != 0 ? 0xEDB88320U : 0U);
        tables[0][byte] = value;
    }
    for (size_t k = 1; k < 8; ++k)
        for (size_t byte = 0; byte < 256; ++byte) {
            const uint32_t shorter = tables[k - 1][byte];
            tables[k][byte] = (shorter >> 8) ^ tables[0][shorter & 0xFF];
        }
    return tables;
}

constexpr Tables kTables = make_tables();

}  // namespace

uint32_t crc32(std::span<const std::byte> bytes) {
    uint32_t crc = 0xFFFFFFFFU;
    while (bytes.size() >= 8) {
        uint64_t word = 0;
        std::memcpy(&word, bytes.data(), sizeof(word));
        word ^= crc;
        crc = 0;
        for (size_t k = 0; k < 8; ++k) crc ^= kTables[7 - k][(word >> (8 * k)) & 0xFF];
        bytes = bytes.subspan(8);
    }
    for (const std::byte byte : bytes)
        crc = (crc >> 8) ^ kTables[0][(crc ^ std::to_integer<uint32_t>(byte)) & 0xFF];
    return ~crc;
}

}  // namespace dslaunch::storage
