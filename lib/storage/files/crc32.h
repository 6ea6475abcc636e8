// The checksum of zip records (CRC-32, polynomial 0xEDB88320 reflected). Threads: pure function.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace dslaunch::storage {

// Returns the checksum of all BYTES, 0 if there are none. Processes eight bytes per round: about 2
// GB/s.
[[nodiscard]] uint32_t crc32(std::span<const std::byte> bytes);

}  // namespace dslaunch::storage
