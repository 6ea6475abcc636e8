// Values of a config.json with their bounds. Each throws Error{kInput} that names the field. Pure.
#pragma once

#include <cstdint>
#include <optional>

#include "base/text/json_place.h"

namespace dslaunch::storage {

// Returns the size at KEY, from 1 to MOST.
[[nodiscard]] int64_t size_at(const JsonPlace& config, const char* key,
                              int64_t most = int64_t{1} << 29);
[[nodiscard]] int64_t size_or(const JsonPlace& config, const char* key, int64_t otherwise);
[[nodiscard]] double number_or(const JsonPlace& config, const char* key, double otherwise);
[[nodiscard]] double positive_or(const JsonPlace& config, const char* key, double otherwise);
[[nodiscard]] double probability_or(const JsonPlace& config, const char* key, double otherwise);
[[nodiscard]] bool flag_or(const JsonPlace& config, const char* key, bool otherwise);
[[nodiscard]] std::optional<JsonPlace> object_at(const JsonPlace& config, const char* key);

}  // namespace dslaunch::storage
