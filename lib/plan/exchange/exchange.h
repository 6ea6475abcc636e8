// The values that the hosts of a job exchange in a step of 1-bit Adam, 1-bit LAMB or 0/1 Adam. All
// other optimizers use only kExact. Pure.
#pragma once

#include <cstdint>
#include <string_view>

namespace dslaunch::plan {

// The values that hosts exchange in one step.
enum class Exchange : uint8_t {
    kExact,     // gradients in full
    kMomentum,  // momenta in 1 bit an element
    kGradient,  // gradients in 1 bit an element
    kNone,      // nothing: in this step, each host continues training alone
    kMoves,     // changes of parameters since the last exchange, in 1 bit an element
};
inline constexpr int kExchanges = 5;

// Returns true if the values are sent in 1 bit an element.
[[nodiscard]] constexpr bool is_compressed(Exchange exchange) {
    return exchange == Exchange::kMomentum || exchange == Exchange::kGradient ||
           exchange == Exchange::kMoves;
}

// Returns a description of EXCHANGE, such as "gradients in full".
[[nodiscard]] std::string_view exchange_name(Exchange exchange);

// The buffers that a compressing optimizer needs in addition to its states.
struct CompressionRoom {
    bool errors = false;   // the errors of compression so far
    bool meeting = false;  // the parameters at the last exchange

    bool operator==(const CompressionRoom&) const = default;
};

}  // namespace dslaunch::plan
