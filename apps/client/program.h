// Finds the program dslaunch, which the library starts. Data path: include/dslaunch -> [here] ->
// child process. No state.
#pragma once

#include <string>

namespace dslaunch::client {

// Returns the path of the program dslaunch. It is GIVEN, or, if GIVEN is empty, the path found in
// the places that JobRequest::program lists. Throws Error{kSetup} if they have no such program.
[[nodiscard]] std::string find_dslaunch(const std::string& given);

}  // namespace dslaunch::client
