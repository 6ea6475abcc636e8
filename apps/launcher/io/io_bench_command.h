// `dslaunch io-bench PATH`: measures the disk under PATH and remembers the best way to use it.
#pragma once

#include <CLI/CLI.hpp>

namespace dslaunch::launcher {

// Adds `io-bench` to APP. Its callback prints results to stdout, progress to stderr, and throws
// Error: kUsage, kDisk, kSetup, kInterrupted (Ctrl-C; the file is gone then).
void add_io_bench_command(CLI::App& app);

}  // namespace dslaunch::launcher
