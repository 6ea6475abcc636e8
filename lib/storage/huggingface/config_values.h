// Reads values of a config.json and checks their bounds. Each function throws Error{kInput} that
// names the field. Pure.
#pragma once

#include <cstdint>
#include <optional>

#include "base/text/json_place.h"

namespace dslaunch::storage {

// Returns the size at KEY, which must be from 1 to MOST.
[[nodiscard]] int64_t size_at(const JsonPlace& config, const char* key,
                              int64_t most = int64_t{1} << 29);
// Return the value at KEY, or OTHERWISE if CONFIG has no value there. A size has the bounds of
// size_at(), and all numbers are finite. positive_or() requires a number above 0, and
// probability_or() a number of at least 0 and below 1.
[[nodiscard]] int64_t size_or(const JsonPlace& config, const char* key, int64_t otherwise);
[[nodiscard]] double number_or(const JsonPlace& config, const char* key, double otherwise);
[[nodiscard]] double positive_or(const JsonPlace& config, const char* key, double otherwise);
[[nodiscard]] double probability_or(const JsonPlace& config, const char* key, double otherwise);
[[nodiscard]] bool flag_or(const JsonPlace& config, const char* key, bool otherwise);
// Returns the object at KEY; nothing if CONFIG has none.
[[nodiscard]] std::optional<JsonPlace> object_at(const JsonPlace& config, const char* key);

}  // namespace dslaunch::storage
