// Functions that tell whether an unsupported section of a config asks for its feature. A section
// that does not ask for it is harmless. Pure.
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
