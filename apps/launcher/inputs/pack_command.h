// `dslaunch pack ARCHIVE …`: a config, data references and other files go into the archive, so that
// it alone is the job. Reads no tensor.
#pragma once

#include <CLI/CLI.hpp>

namespace dslaunch::launcher {

// Adds `pack` to APP. Its callback throws Error: kUsage for nothing to pack, kInput for a bad
// archive or a file that is not there, kConfig, kDisk.
void add_pack_command(CLI::App& app);

}  // namespace dslaunch::launcher
