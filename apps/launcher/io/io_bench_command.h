// `dslaunch io-bench PATH`: measures the disk under PATH and stores the best settings for it.
#pragma once

#include <span>
#include <string>

namespace dslaunch::launcher {

// ARGUMENTS without `io-bench`. Prints results to stdout, progress to stderr; the result is the
// exit code. Throws Error: kUsage, kDisk, kSetup, kInterrupted (Ctrl-C; the file is removed).
[[nodiscard]] int io_bench_command(std::span<const std::string> arguments);

}  // namespace dslaunch::launcher
