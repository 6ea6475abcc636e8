// `dslaunch pack ARCHIVE …`: a config, data references and other files go into the archive, so that
// it alone is the job. Reads no tensor.
#pragma once

#include <span>
#include <string>

namespace dslaunch::launcher {

// ARGUMENTS without `pack`. The result is the exit code. Throws Error: kUsage, also for nothing to
// pack; kInput for a bad archive or a file that is not there; kConfig, kDisk.
[[nodiscard]] int pack_command(std::span<const std::string> arguments);

}  // namespace dslaunch::launcher
