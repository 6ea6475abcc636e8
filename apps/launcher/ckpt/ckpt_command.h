// `dslaunch ckpt ls|verify|inspect|diff|export|import` and `dslaunch zero_to_fp32`: lists,
// verifies, compares, exports and imports checkpoints. One file each, ckpt_*.cpp. No LibTorch: the
// export that needs it is `dsworker export`.
#pragma once

#include <span>
#include <string>

namespace dslaunch::launcher {

// ARGUMENTS come without the subcommand's name. The result is the exit code. Throws Error: kUsage;
// kInput if the input is no checkpoint of dslaunch; kCheckpoint if none is usable or one is
// damaged; kDisk.
[[nodiscard]] int ckpt_command(std::span<const std::string> arguments);
[[nodiscard]] int zero_to_fp32_command(std::span<const std::string> arguments);

}  // namespace dslaunch::launcher
