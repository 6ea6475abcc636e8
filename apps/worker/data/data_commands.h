// The commands of `dslaunch data`, each in the source file of its name. They make rows of tokens
// from text and chats, and show such rows.
#pragma once

#include <functional>

#include "base/text/command_line.h"

namespace dslaunch::worker {

// The page of the documentation that the --help of these commands names.
inline constexpr const char* kDataDocs = "docs/guide/data.md";

// Each function adds one subcommand to APP, and returns the work to do if the user chose it. The
// work throws Error for problems that the user or the machine causes.
[[nodiscard]] std::function<void()> add_data_prepare(CommandLine& app);
[[nodiscard]] std::function<void()> add_data_show(CommandLine& app);
[[nodiscard]] std::function<void()> add_data_stats(CommandLine& app);

}  // namespace dslaunch::worker
