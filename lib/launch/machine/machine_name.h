// The name that this machine gives itself. No threads.
#pragma once

#include <string>

namespace dslaunch::launch {

// The machine's host name; UNNAMED if it has none.
[[nodiscard]] std::string machine_name(const std::string& unnamed = "unknown");

}  // namespace dslaunch::launch
