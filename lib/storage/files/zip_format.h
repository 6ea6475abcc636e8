// The fields of the zip format that TorchScript archives use (PKWARE APPNOTE 6.3), for the reader
// and the writer. Little-endian.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace dslaunch::storage::zip {

inline constexpr uint32_t kLocalMark = 0x04034b50;
inline constexpr uint32_t kCentralMark = 0x02014b50;
inline constexpr uint32_t kEndMark = 0x06054b50;
inline constexpr uint32_t kEnd64Mark = 0x06064b50;
inline constexpr uint32_t kLocator64Mark = 0x07064b50;

inline constexpr size_t kLocalBytes = 30;
inline constexpr size_t kCentralBytes = 46;
inline constexpr size_t kEndBytes = 22;
inline constexpr size_t kEnd64Bytes = 56;
inline constexpr size_t kLocator64Bytes = 20;

inline constexpr uint32_t kFull16 = 0xFFFF;      // "see the zip64 field"
inline constexpr uint32_t kFull32 = 0xFFFFFFFF;  // "see the zip64 field"
inline constexpr uint32_t kZip64Field = 1;
inline constexpr uint32_t kPaddingField = 0x4246;  // "FB", as in PyTorch's padding
inline constexpr uint32_t kStored = 0;
inline constexpr uint32_t kDeflated = 8;
inline constexpr uint32_t kSizesFollowFlag = 0x0008;
inline constexpr uint32_t kUtf8Flag = 0x0800;
inline constexpr uint32_t kEncryptedFlags = 0x2041;
inline constexpr int64_t kDataAlignment = 64;

// Returns the number in the WIDTH bytes at AT. REQUIRES: they are inside BYTES; width <= 8.
[[nodiscard]] inline uint64_t load(std::span<const std::byte> bytes, size_t at, size_t width) {
    uint64_t value = 0;
    for (size_t i = 0; i < width; ++i) value |= std::to_integer<uint64_t>(bytes[at + i]) << (8 * i);
    return value;
}

// Appends the low KWIDTH bytes of VALUE.
template <size_t kWidth>
void append(std::string& out, uint64_t value) {
    for (size_t i = 0; i < kWidth; ++i) out += static_cast<char>((value >> (8 * i)) & 0xFF);
}

}  // namespace dslaunch::storage::zip
