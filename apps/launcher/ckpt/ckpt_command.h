// `dslaunch ckpt ls|verify|inspect|diff|export|import` and `dslaunch zero_to_fp32`: checkpoints
// looked at, checked, compared, written for others and made of what others wrote. One file each,
// ckpt_*.cpp. No LibTorch: what needs it is `dsworker export`.
#pragma once

#include <span>
#include <string>

namespace dslaunch::launcher {

// ARGUMENTS without the subcommand's name. The result is the exit code. Throws Error: kUsage;
// kInput for what is no checkpoint of ours; kCheckpoint for none that is usable or a damaged one;
// kDisk.
[[nodiscard]] int ckpt_command(std::span<const std::string> arguments);
[[nodiscard]] int zero_to_fp32_command(std::span<const std::string> arguments);

}  // namespace dslaunch::launcher
