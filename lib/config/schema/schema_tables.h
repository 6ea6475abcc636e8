// The parts of the schema's table, one function per file; schema.h joins them. Internal to
// lib/config.
#pragma once

#include "config/schema/schema.h"

#include <vector>

namespace dslaunch::config {

[[nodiscard]] std::vector<KeySpec> training_keys();
[[nodiscard]] std::vector<KeySpec> zero_keys();
[[nodiscard]] std::vector<KeySpec> feature_keys();
[[nodiscard]] std::vector<KeySpec> service_keys();
[[nodiscard]] std::vector<KeySpec> compression_keys();
[[nodiscard]] std::vector<KeySpec> dslaunch_keys();

}  // namespace dslaunch::config
