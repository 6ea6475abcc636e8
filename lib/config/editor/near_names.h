// Mistyped names as a regular expression, for the JSON Schema. Pure.
#pragma once

#include <string>
#include <vector>

namespace dslaunch::config {

// Returns a regular expression (ECMA-262) for mistyped forms of NAME: a letter is missing, wrong or
// too much, or two letters are swapped. In names of seven letters and more, one letter may also be
// replaced by two. It matches no name of KNOWN, and no name that begins with `_`, because nobody
// mistypes these names. is_ignored() (config/schema/schema.h) is false for every such name.
// REQUIRES: NAME is in KNOWN, and both consist of letters, digits and `_`.
[[nodiscard]] std::string near_names_pattern(const std::string& name,
                                             const std::vector<std::string>& known);

}  // namespace dslaunch::config
