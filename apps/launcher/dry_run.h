// What --dry-run prints: the whole job as a table for people or as JSON for programs. Pure.
#pragma once

#include <string>

#include "launch/job_spec.h"

namespace dslaunch {

// A line for each host with its transport and working directory, then for each rank its place,
// devices, command; the environment of rank 0. Ends with a newline.
[[nodiscard]] std::string dry_run_text(const JobSpec& spec);

// {"world_size", "workers": [{"rank", "host", "node_rank", "local_rank", "devices", "env",
// "command"}], …}, one line. "devices" is what CUDA_VISIBLE_DEVICES lists, numbers where they are
// numbers; "env" is what dslaunch adds to the worker's environment.
[[nodiscard]] std::string dry_run_json(const JobSpec& spec);

}  // namespace dslaunch
