// The config's keys as a JSON Schema, for editors and checkers: `dslaunch config schema`. It is
// made from the same table as everything else (config/schema/keys.tsv). Pure.
#pragma once

#include <string>

namespace dslaunch::config {

// Returns a JSON Schema (draft 7) of a config: types, ranges, choices, defaults, meanings, other
// names of keys, and `auto` where it is accepted. It accepts every config that
// check_against_schema() accepts. It refuses unknown keys and values as that does, but for two
// things that depend on other values: keys of sections that are switched off, and relations between
// keys. Beside the standard's words it has `errorMessage`, `deprecationMessage` and `doNotSuggest`,
// which VS Code shows and other programs ignore. Ends with a newline. SECTION: the schema of this
// section alone ("zero_optimization"); empty: of the whole config. REQUIRES: SECTION is a section
// of the schema.
[[nodiscard]] std::string json_schema(const std::string& section = "");

}  // namespace dslaunch::config
