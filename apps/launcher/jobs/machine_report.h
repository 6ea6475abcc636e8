// What a bug report needs to know of this machine: system, processor, memory, GPUs, libraries,
// limits, cgroup, programs, variables.
#pragma once

#include <string>
#include <vector>

#include "launcher/jobs/report.h"

namespace dslaunch::launcher {

// Reads /proc and /sys and runs a few programs (`ssh -V`, `nvidia-smi`, `ldd` of our own dsworker,
// …), each for 5 s at most. What is missing is said to be.
[[nodiscard]] std::vector<ReportSection> machine_report();

// Number of hosts and slots, and which fields its lines use; no names. Throws as read_hostfile.
[[nodiscard]] ReportSection hostfile_report(const std::string& path, NameMask& mask);

}  // namespace dslaunch::launcher
