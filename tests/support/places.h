// The places of this tree's sources, fixtures and built programs; folders are without a slash at
// the end. The variables DSL_SOURCE_DIR and DSL_BIN name them for programs that were built
// elsewhere.
#pragma once

#include <string>

namespace dslaunch::test {

[[nodiscard]] const char* source_dir();
[[nodiscard]] const char* binary_dir();

// Returns the path of NAME in tests/fixtures.
[[nodiscard]] inline std::string fixture_path(const std::string& name) {
    return std::string(source_dir()) + "/tests/fixtures/" + name;
}

inline const std::string kDslaunch = std::string(binary_dir()) + "/dslaunch";
inline const std::string kProbe = std::string(binary_dir()) + "/launch_probe";

}  // namespace dslaunch::test
