// The values that hosts of a job exchange in a step of 1-bit Adam, 1-bit LAMB or 0/1 Adam. Every
// other optimizer has only kExact. Pure.
#pragma once

#include <cstdint>
#include <string_view>

namespace dslaunch::plan {

enum class Exchange : uint8_t {
    kExact,     // gradients in full
    kMomentum,  // momenta in 1 bit an element
    kGradient,  // gradients in 1 bit an element
    kNone,      // nothing: each host goes on alone
    kMoves,     // how far parameters have moved since the hosts met last, in 1 bit an element
};
inline constexpr int kExchanges = 5;

[[nodiscard]] constexpr bool is_compressed(Exchange exchange) {
    return exchange == Exchange::kMomentum || exchange == Exchange::kGradient ||
           exchange == Exchange::kMoves;
}

// Returns "gradients in full" and the like.
[[nodiscard]] std::string_view exchange_name(Exchange exchange);

// The values that a compressing optimizer keeps beside its states.
struct CompressionRoom {
    bool errors = false;   // losses of compression so far
    bool meeting = false;  // the parameters when the hosts met last

    bool operator==(const CompressionRoom&) const = default;
};

}  // namespace dslaunch::plan
