// The layers that the fields of an adapter's config name, by the rules of PEFT 0.21: ends of names,
// regular expressions for whole names, and indices of layers. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace dslaunch::storage {

// A list of patterns for names of layers, each with a number. A layer gets the number of the first
// pattern that matches its name.
using NamedNumbers = std::vector<std::pair<std::string, double>>;

// Returns the number for the layer PATH, or OTHERWISE if no pattern matches. A pattern matches if
// it describes all of PATH, or the part of PATH after one of its dots.
[[nodiscard]] double number_for(const NamedNumbers& numbers, std::string_view path,
                                double otherwise);

// Throws std::regex_error if PATTERN, a regular expression of Python, cannot be used here.
void require_pattern(const std::string& pattern);

// Names of layers: one regular expression for the whole name, or a list of names and ends of names.
struct NameRule {
    std::optional<std::string> pattern;
    std::vector<std::string> ends;

    // Returns true if the rule names no layer at all.
    [[nodiscard]] bool is_empty() const { return !pattern && ends.empty(); }
    // Returns true if the pattern matches all of PATH, or if PATH is one of `ends` or ends with "."
    // and one of `ends`.
    [[nodiscard]] bool fits(std::string_view path) const;
};

// The fields that say which layers get an adapter.
struct TargetNames {
    bool names_all_linear = false;  // every linear layer except the last
    NameRule targets;               // empty if the config does not have the field
    NameRule excluded;
    std::vector<int64_t> layers;     // indices of layers (layers_to_transform); all if empty
    std::vector<std::string> lists;  // names of the lists that contain layers (layers_pattern)

    // Returns true if the config allows an adapter for the layer PATH.
    [[nodiscard]] bool may_have(std::string_view path) const;
};

}  // namespace dslaunch::storage
