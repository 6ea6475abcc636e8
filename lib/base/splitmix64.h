// SplitMix64 (Steele, Lea & Flood 2014): numbers that look random and are the same on every
// machine.
#pragma once

#include <cstdint>

namespace dslaunch {

// Returns the pseudo-random number that SplitMix64 computes from the state VALUE. Each bit of VALUE
// affects each bit of the result.
[[nodiscard]] constexpr uint64_t splitmix64(uint64_t value) {
    value += 0x9E3779B97F4A7C15ULL;
    value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9ULL;
    value = (value ^ (value >> 27)) * 0x94D049BB133111EBULL;
    return value ^ (value >> 31);
}

}  // namespace dslaunch
