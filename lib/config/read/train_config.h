// The train config holds the user's settings: the text of ds_config.json (or the same keys as
// YAML), each value with its place. hostfile -> … -> [train config] -> run config. No threads: a
// value type.
#pragma once

#include "config/read/value.h"

#include <string>
#include <string_view>
#include <vector>

namespace dslaunch::config {

// The longest text: a longer one is refused, not truncated.
constexpr size_t kConfigBytesMax = size_t{1} << 20;

struct TrainConfig {
    std::string name;               // the file's name, for messages
    Value root;                     // an object
    std::vector<Problem> problems;  // found while reading: syntax, duplicate keys
};

// Returns a config without settings: every value is its default.
[[nodiscard]] TrainConfig empty_config();

// Reads JSON or YAML. Never throws on bad text: `problems` says what is wrong, with
// NAME:line:column.
[[nodiscard]] TrainConfig parse_config(std::string_view text, const std::string& name);

// Reads the file. Throws Error{kConfig}: missing, not a file, not readable, too large.
[[nodiscard]] TrainConfig load_config(const std::string& path);

// Sets a value by "a.b=c": c is read as a YAML scalar or flow ([1, 2], {"x": 1}); ORIGIN is printed
// for it. A shorthand flag is such an override: apply_override(config, "dslaunch.steps=10",
// "--steps"). Throws Error{kUsage}: no '=', an empty part of the path, a value that does not parse.
void apply_override(TrainConfig& config, std::string_view assignment,
                    const Origin& origin = "--set");

// Does the same with TEXT taken as a string, whatever it looks like (paths, names).
void apply_text(TrainConfig& config, std::string_view path, std::string text, const Origin& origin);

}  // namespace dslaunch::config
