// Hosts with equal output are named together: below what `exec` prints. Pure.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace dslaunch::launch {

struct OutputGroup {
    std::vector<size_t> hosts;  // ascending
    std::string text;
};

// Indices with equal TEXTS together, in the order of their first host.
[[nodiscard]] std::vector<OutputGroup> group_equal(const std::vector<std::string>& texts);

}  // namespace dslaunch::launch
