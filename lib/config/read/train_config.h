// The train config is the user's settings: the text of ds_config.json (or the same keys as YAML),
// each value with the place where it was given. Data path: hostfile -> … -> [train config] -> run
// config. No threads: a value type.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "config/read/value.h"

namespace dslaunch::config {

// The size limit of a config: a longer text is refused, not truncated.
constexpr size_t kConfigBytesMax = size_t{1} << 20;

// The user's settings as they were written; no default is filled in.
struct TrainConfig {
    std::string name;               // the file's name, for messages
    Value root;                     // always an object
    std::vector<Problem> problems;  // found while reading: syntax, duplicate keys
};

// Returns a config without settings, in which every value has its default.
[[nodiscard]] TrainConfig empty_config();

// Reads JSON or YAML. Does not throw for a bad text: `problems` then says what is wrong, with
// NAME:line:column.
[[nodiscard]] TrainConfig parse_config(std::string_view text, const std::string& name);

// Reads the file. Throws Error{kConfig} if it is missing, not a file, not readable or too large.
[[nodiscard]] TrainConfig load_config(const std::string& path);

// Sets one value. ASSIGNMENT is a path and a value, "a.b=c"; the value is read as a YAML scalar or
// flow ([1, 2], {"x": 1}). Messages show ORIGIN as the place where the value was given. For
// example, --steps 10 calls apply_override(config, "dslaunch.steps=10", "--steps"). Throws
// Error{kUsage} if there is no '=', a part of the path is empty, or the value cannot be parsed.
void apply_override(TrainConfig& config, std::string_view assignment,
                    const Origin& origin = "--set");

// Sets the value at PATH to the string TEXT, even if TEXT looks like a number. Used for file paths
// and names.
void apply_text(TrainConfig& config, std::string_view path, std::string text, const Origin& origin);

}  // namespace dslaunch::config
