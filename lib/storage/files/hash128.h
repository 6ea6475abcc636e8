// XXH3-128: the hash that a checkpoint stores for its pieces and files. Pure.
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>

namespace dslaunch::storage {

// A hash, as two halves.
struct Hash128 {
    uint64_t low = 0;
    uint64_t high = 0;
    auto operator<=>(const Hash128&) const = default;  // NOLINT(modernize-use-nullptr): no pointer
};
// Returns the hash of all BYTES.
[[nodiscard]] Hash128 hash_of(std::string_view bytes);

// Returns 32 hexadecimal digits, the high half first.
[[nodiscard]] std::string hash_text(const Hash128& hash);

}  // namespace dslaunch::storage
