// Tells whether a section that is not supported asks for something. Pure.
#pragma once

#include <optional>
#include <string_view>

namespace dslaunch::config {

// Returns the name of the switch in the section PATH, "enabled" or "shared_parameters.enabled":
// such a section asks for something if its switch is on. Returns nothing if it has none.
[[nodiscard]] std::optional<std::string_view> switch_name_of(std::string_view path);

// Returns true for a section without a switch that asks for the feature by being present.
[[nodiscard]] bool asks_by_presence(std::string_view path);

}  // namespace dslaunch::config
