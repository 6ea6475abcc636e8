// `dslaunch ckpt ls|verify|inspect|diff|export`: checkpoints
// looked at, checked, compared and written for others. One file each,
// ckpt_*.cpp. No LibTorch: what needs it is `dsworker export`.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

namespace dslaunch {

// Becomes `dsworker WORDS…`; does not return.
using BecomeWorker = std::function<void(const std::vector<std::string>& words)>;

// Adds `ckpt` with its subcommands to APP. Their callbacks set EXIT_CODE and
// throw Error: kUsage, kInput for what is no checkpoint of ours, kCheckpoint for none that is
// usable or a damaged one, kDisk.
void add_ckpt_command(CLI::App& app, int& exit_code, const BecomeWorker& become_worker);

}  // namespace dslaunch
