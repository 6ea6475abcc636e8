// The parts of the schema's table, one function per file; schema.cpp joins them. Internal to
// lib/config.
#pragma once

#include <span>

#include "config/schema/key_spec.h"

namespace dslaunch::config {

// The row of PATH, another name of the key SAME_AS: schema.cpp takes from that key's row whatever
// is not given here.
constexpr KeySpec another_name(const char* path, const char* same_as, const char* doc,
                               const char* fallback = nullptr, const char* allowed = nullptr) {
    return {path, KeyType::kFree, fallback, allowed, doc, KeyStatus::kSupported, "", "", same_as};
}

[[nodiscard]] std::span<const KeySpec> training_keys();
[[nodiscard]] std::span<const KeySpec> zero_keys();
[[nodiscard]] std::span<const KeySpec> feature_keys();
[[nodiscard]] std::span<const KeySpec> service_keys();
[[nodiscard]] std::span<const KeySpec> compression_keys();
[[nodiscard]] std::span<const KeySpec> dslaunch_keys();

}  // namespace dslaunch::config
