// A section that is not supported is harmless unless it asks for its feature. These functions tell
// whether a section does. Pure.
#pragma once

#include <optional>
#include <string_view>

namespace dslaunch::config {

// Returns the name of the key that switches the section PATH on: "enabled" or
// "shared_parameters.enabled". The section asks for its feature if this key is true. Returns
// nothing if the section has no such key.
[[nodiscard]] std::optional<std::string_view> switch_name_of(std::string_view path);

// Returns true if the section PATH has no switch: it asks for its feature if it is present.
[[nodiscard]] bool asks_by_presence(std::string_view path);

}  // namespace dslaunch::config
