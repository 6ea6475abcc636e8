// Functions that take or return an amount of memory or network traffic use the type Bytes, so that
// a byte count cannot be confused with an element count.
#pragma once

#include <compare>
#include <cstdint>
#include <string>

namespace dslaunch {

// A number of bytes; differences may be negative. Arithmetic is not checked for overflow.
struct Bytes {
    int64_t value = 0;

    auto operator<=>(const Bytes&) const = default;  // NOLINT(modernize-use-nullptr): no pointer
    Bytes& operator+=(Bytes other) {
        value += other.value;
        return *this;
    }
    Bytes& operator-=(Bytes other) {
        value -= other.value;
        return *this;
    }
};

[[nodiscard]] constexpr Bytes operator+(Bytes a, Bytes b) {
    return {a.value + b.value};
}
[[nodiscard]] constexpr Bytes operator-(Bytes a, Bytes b) {
    return {a.value - b.value};
}
[[nodiscard]] constexpr Bytes operator*(Bytes a, int64_t factor) {
    return {a.value * factor};
}

// Return N KiB, MiB or GiB (powers of 1024).
[[nodiscard]] constexpr Bytes kib(int64_t n) {
    return {n << 10};
}
[[nodiscard]] constexpr Bytes mib(int64_t n) {
    return {n << 20};
}
[[nodiscard]] constexpr Bytes gib(int64_t n) {
    return {n << 30};
}

// Returns "1.50 GiB", "12.0 KiB", "37 B".
[[nodiscard]] std::string to_text(Bytes bytes);

// Rounds VALUE up to a multiple of ALIGNMENT. REQUIRES: alignment > 0.
[[nodiscard]] constexpr int64_t round_up(int64_t value, int64_t alignment) {
    return (value + alignment - 1) / alignment * alignment;
}

}  // namespace dslaunch
