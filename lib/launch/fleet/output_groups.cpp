#include "launch/fleet/output_groups.h"

#include <map>

namespace dslaunch::launch {

std::vector<OutputGroup> group_equal(const std::vector<std::string>& texts) {
    std::vector<OutputGroup> groups;
    std::map<std::string, size_t> group_of;
    for (size_t i = 0; i < texts.size(); ++i) {
        const auto [found, is_new] = group_of.emplace(texts[i], groups.size());
        if (is_new) groups.push_back({{}, texts[i]});
        groups[found->second].hosts.push_back(i);
    }
    return groups;
}

}  // namespace dslaunch::launch
