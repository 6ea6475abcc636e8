// The name of this machine. No threads.
#pragma once

#include <string>

namespace dslaunch::launch {

// Returns the machine's host name; UNNAMED if it has none.
[[nodiscard]] std::string machine_name(const std::string& unnamed = "unknown");

}  // namespace dslaunch::launch
