// The program dslaunch that the library starts. Data path: include/dslaunch -> [here] -> child.
// No state.
#pragma once

#include <string>

namespace dslaunch::client {

// Returns the path of the program dslaunch: GIVEN if it is not empty, else as JobRequest::program
// says. Throws Error{kSetup} if there is none.
[[nodiscard]] std::string find_dslaunch(const std::string& given);

}  // namespace dslaunch::client
