// The names of this machine's users. No state.
#pragma once

#include <sys/types.h>

#include <string>

namespace dslaunch::launch {

// Returns the name of USER, or its number where it has none; printable.
[[nodiscard]] std::string user_name(uid_t user);

}  // namespace dslaunch::launch
