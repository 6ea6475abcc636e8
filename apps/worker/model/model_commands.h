// The commands of `dslaunch model`, each in the source file of its name. They make, convert, merge
// and show models without Python. One thread.
#pragma once

#include <functional>

#include "base/text/command_line.h"

namespace dslaunch::worker {

// Each function adds one subcommand to APP, and returns the work to do if the user chose it. The
// work throws Error for problems that the user or the machine causes.
[[nodiscard]] std::function<void()> add_model_new(CommandLine& app);
[[nodiscard]] std::function<void()> add_model_import(CommandLine& app);
[[nodiscard]] std::function<void()> add_model_merge(CommandLine& app);
[[nodiscard]] std::function<void()> add_model_show(CommandLine& app);

}  // namespace dslaunch::worker
