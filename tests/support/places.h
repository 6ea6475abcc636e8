// Where the sources and the built programs of this clone lie, without a slash at the end.
#pragma once

#include <string>

namespace dslaunch::test {

[[nodiscard]] const char* source_dir();
[[nodiscard]] const char* binary_dir();

inline const std::string kDslaunch = std::string(binary_dir()) + "/dslaunch";
inline const std::string kProbe = std::string(binary_dir()) + "/launch_probe";

}  // namespace dslaunch::test
