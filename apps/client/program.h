// Finds the program dslaunch, which the library starts. Data path: include/dslaunch -> [here] ->
// child process. No state.
#pragma once

#include <string>

namespace dslaunch::client {

// Returns GIVEN or, if it is empty, the path at which the program dslaunch is found.
// JobRequest::program lists the places that are searched. Throws Error{kSetup} if it is not found.
[[nodiscard]] std::string find_dslaunch(const std::string& given);

}  // namespace dslaunch::client
