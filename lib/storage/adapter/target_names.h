// The layers that the fields of an adapter's config name, by the rules of PEFT 0.21: ends of names,
// regular expressions of whole names, and numbers of layers. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace dslaunch::storage {

// Numbers by a pattern of names, in the order of the config: the first pattern that fits counts.
using NamedNumbers = std::vector<std::pair<std::string, double>>;

// Returns PATH's number: the first pattern's that fits all of it or its end after a dot.
[[nodiscard]] double number_for(const NamedNumbers& numbers, std::string_view path,
                                double otherwise);

// Throws std::regex_error if PATTERN, of Python's, has no meaning here.
void require_pattern(const std::string& pattern);

// Names of layers: one regular expression of the whole name, or a list of names and their ends.
struct NameRule {
    std::optional<std::string> pattern;
    std::vector<std::string> ends;

    [[nodiscard]] bool is_empty() const { return !pattern && ends.empty(); }
    [[nodiscard]] bool fits(std::string_view path) const;
};

struct TargetNames {
    bool all_linear = false;  // every linear layer but the last
    NameRule targets;         // empty: the config does not say
    NameRule excluded;
    std::vector<int64_t> layers;     // numbers of layers (layers_to_transform); empty: all
    std::vector<std::string> lists;  // names of the lists that they count (layers_pattern)

    // True unless the config leaves the layer PATH without an adapter.
    [[nodiscard]] bool may_have(std::string_view path) const;
};

}  // namespace dslaunch::storage
