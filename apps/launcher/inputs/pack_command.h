// `dslaunch pack ARCHIVE …`: puts a config, data references and other files into the archive, so
// that the archive alone is the job. Reads no tensor.
#pragma once

#include <span>
#include <string>

namespace dslaunch::launcher {

// ARGUMENTS without `pack`. The result is the exit code. Throws Error: kUsage, also if there is
// nothing to pack; kInput for a bad archive or a missing file; kConfig, kDisk.
[[nodiscard]] int pack_command(std::span<const std::string> arguments);

}  // namespace dslaunch::launcher
