#include "config/editor/near_names.h"

#include <fmt/format.h>

#include "base/text.h"

namespace dslaunch::config {

std::string near_names_pattern(const std::string& name, const std::vector<std::string>& known) {
    constexpr size_t kDistanceMax = 2;  // largest distance of a name that the pattern matches
    constexpr size_t kLongName = 7;
    std::vector<std::string> others;
    for (const std::string& other : known)
        if (edit_distance(name, other) <= kDistanceMax) others.push_back(other);
    std::vector<std::string> forms;
    for (size_t i = 0; i < name.size(); ++i) {
        const std::string before = name.substr(0, i);
        const std::string after = name.substr(i + 1);
        if (name.size() >= kLongName) {
            forms.push_back(before + ".{0,2}" + after);
        } else {
            forms.push_back(before + ".?" + after);
            forms.push_back(before + "." + name.substr(i));
        }
        if (i + 1 < name.size() && name[i] != name[i + 1])
            forms.push_back(before + name[i + 1] + name[i] + name.substr(i + 2));
    }
    if (name.size() < kLongName) forms.push_back(name + ".");
    return fmt::format("^(?!_)(?!({})$)({})$", join(others, "|"), join(forms, "|"));
}

}  // namespace dslaunch::config
