// The config's keys as a JSON Schema, for editors and checkers: `dslaunch config schema`. It is
// made from the table of all keys (config/schema/keys.tsv). Pure.
#pragma once

#include <string>

namespace dslaunch::config {

// Returns a JSON Schema (draft 7) of a config: types, ranges, choices, defaults, meanings, other
// names of keys, and `auto` where it is accepted. It accepts every config that
// check_against_schema() accepts. It refuses the same unknown keys and values, except in two
// cases that depend on other values: keys of sections that are switched off, and relations between
// keys. In addition to the standard's words, it has `errorMessage`, `deprecationMessage` and
// `doNotSuggest`, which VS Code shows and other programs ignore. It ends with a newline. If SECTION
// ("zero_optimization") is not empty, returns the schema of this section alone. REQUIRES: SECTION
// is empty or a section of the schema.
[[nodiscard]] std::string json_schema(const std::string& section = "");

}  // namespace dslaunch::config
