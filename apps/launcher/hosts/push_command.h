// `dslaunch push`: dslaunch, its libraries, models and data to all hosts; and `run --push`.
#pragma once

#include <span>
#include <string>

#include "launch/plan/job_spec.h"

namespace dslaunch::launcher {

// ARGUMENTS without `push`. The result is the exit code. Throws Error.
[[nodiscard]] int push_command(std::span<const std::string> arguments);

// Sends the files that a job needs to its hosts, before it starts: the required files, and for a
// .pt job the programs. Throws Error{kHosts} naming each host that did not get all files. REQUIRES:
// hosts over ssh.
void push_for_job(const launch::JobSpec& spec);

}  // namespace dslaunch::launcher
