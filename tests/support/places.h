// The places of this tree's sources and built programs, without a slash at the end. The variables
// DSL_SOURCE_DIR and DSL_BIN name them for programs that were built elsewhere.
#pragma once

#include <string>

namespace dslaunch::test {

[[nodiscard]] const char* source_dir();
[[nodiscard]] const char* binary_dir();

inline const std::string kDslaunch = std::string(binary_dir()) + "/dslaunch";
inline const std::string kProbe = std::string(binary_dir()) + "/launch_probe";

}  // namespace dslaunch::test
