// `dslaunch tokens bytes TEXT -o FILE`: text as a token file, one uint16 token a byte.
#pragma once

#include <span>
#include <string>

namespace dslaunch::launcher {

// ARGUMENTS without `tokens`. The result is the exit code. Throws Error: kUsage; kInput for a text
// that cannot be read or is empty; kDisk when the token file cannot be written.
[[nodiscard]] int tokens_command(std::span<const std::string> arguments);

}  // namespace dslaunch::launcher
