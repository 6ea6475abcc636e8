// `dslaunch ckpt ls|verify|inspect|diff|export|import` and `dslaunch zero_to_fp32`: checkpoints
// looked at, checked, compared, written for others and made of what others wrote. One file each,
// ckpt_*.cpp. No LibTorch: what needs it is `dsworker export`.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

namespace dslaunch::launcher {

// Becomes `dsworker WORDS…`; does not return.
using BecomeWorker = std::function<void(const std::vector<std::string>& words)>;

// Adds `ckpt` with its subcommands, and `zero_to_fp32`, to APP. Their callbacks set EXIT_CODE and
// throw Error: kUsage, kInput for what is no checkpoint of ours, kCheckpoint for none that is
// usable or a damaged one, kDisk.
void add_ckpt_command(CLI::App& app, int& exit_code, const BecomeWorker& become_worker);
void add_zero_to_fp32_command(CLI::App& app);

}  // namespace dslaunch::launcher
