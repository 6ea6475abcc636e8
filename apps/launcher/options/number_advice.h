// Advice for option values that should be numbers but are written with units, with dashes, commas
// or underscores, or in other spellings. Pure.
#pragma once

#include <cstdint>
#include <string>

namespace dslaunch::launcher {

// Returns advice if VALUE contains a character that a number must not have, for example "; its dash
// is not a minus sign: …". Otherwise returns an empty text.
[[nodiscard]] std::string foreign_number_advice(const std::string& value);

// Returns "; write 10" if VALUE is a whole number from LEAST to MOST in another spelling, such as
// 1e1. Otherwise returns an empty text.
[[nodiscard]] std::string plain_advice(const std::string& value, int64_t least, int64_t most);

// Returns "; give the time in seconds: 600" for a time with a unit, such as 10m or 1h30m, or for
// 00:10:00. Returns an empty text for anything else.
[[nodiscard]] std::string seconds_advice(const std::string& value);

}  // namespace dslaunch::launcher
