// The facts of this machine for a bug report: system, processor, memory, GPUs, libraries, limits,
// cgroup, programs, variables.
#pragma once

#include <string>
#include <vector>

#include "launcher/jobs/report.h"

namespace dslaunch::launcher {

// Reads /proc and /sys and runs a few programs, such as `ssh -V`, `nvidia-smi`, `ldd` of dsworker,
// each for 5 s at most. Missing parts are reported as missing.
[[nodiscard]] std::vector<ReportSection> machine_report();

// Number of hosts and slots, and the fields that the hostfile's lines use; no names. Throws as
// read_hostfile.
[[nodiscard]] ReportSection hostfile_report(const std::string& path, NameMask& mask);

}  // namespace dslaunch::launcher
