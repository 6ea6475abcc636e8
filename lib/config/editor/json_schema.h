// The config's keys as a JSON Schema, for editors and checkers: `dslaunch config schema`. It is
// made from the same table as everything else (config/schema/keys.tsv). Pure.
#pragma once

#include <string>

namespace dslaunch::config {

// Returns a JSON Schema (draft 7) of a config: types, ranges, choices, defaults, meanings, other
// names of keys, and `auto` where it is accepted. It accepts every config that
// check_against_schema() accepts. It refuses the unknown keys and values that
// check_against_schema() refuses, with two exceptions, which depend on other values: keys of
// sections that are switched off, and relations between keys. Besides the standard's words it has
// `errorMessage`, `deprecationMessage` and `doNotSuggest`, which VS Code shows and other programs
// ignore. Ends with a newline.
[[nodiscard]] std::string json_schema();

}  // namespace dslaunch::config
