// What `exec` prints when hosts say the same: hosts with equal output are named together. Pure.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace dslaunch::launch {

// "te[1-3],gw": neighbours in NAMES that count up with equal prefix, suffix and width of digits
// share a bracket; the order of NAMES is kept.
[[nodiscard]] std::string fold_names(const std::vector<std::string>& names);

struct OutputGroup {
    std::vector<size_t> hosts;  // ascending
    std::string text;
};

// Indices with equal TEXTS together, in the order of their first host.
[[nodiscard]] std::vector<OutputGroup> group_equal(const std::vector<std::string>& texts);

}  // namespace dslaunch::launch
