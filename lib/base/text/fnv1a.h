// FNV-1a, a hash that gives the same number on every machine. Not for names that an attacker may
// choose.
#pragma once

#include <cstdint>
#include <string_view>

namespace dslaunch {

inline constexpr uint64_t kFnv1aBegin = 0xcbf29ce484222325;

// Extends HASH, the hash of the text before TEXT, by TEXT. Returns the hash of the whole text.
[[nodiscard]] constexpr uint64_t fnv1a(uint64_t hash, std::string_view text) {
    for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
    return hash;
}

}  // namespace dslaunch
