// `dslaunch bundle OUT.tar.zst [FILE…]`: the installation and files as one archive.
#pragma once

#include <span>
#include <string>

namespace dslaunch::launcher {

// ARGUMENTS without `bundle`. The result is the exit code. Throws Error.
[[nodiscard]] int bundle_command(std::span<const std::string> arguments);

}  // namespace dslaunch::launcher
