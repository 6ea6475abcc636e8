// The output of --dry-run: the whole job as a table for people or as JSON for programs. Pure,
// except places_here().
#pragma once

#include <string>
#include <vector>

#include "launch/plan/job_spec.h"
#include "launch/plan/launch_plan.h"

namespace dslaunch::launcher {

// Warns if a model's ranks are more than this machine's processors, as their start does.
void warn_of_crowd(const launch::JobSpec& spec);

// Returns the processors of each rank, by rank, if all ranks run on this machine; empty if they do
// not or are not bound. Reads this machine's topology. Throws Error{kUsage} as place_ranks() does.
[[nodiscard]] std::vector<launch::RankPlace> places_here(const launch::JobSpec& spec);

// Returns a line for each host with its transport and working directory, then for each rank its
// place, devices, command; the environment of rank 0; the processors of each rank. PLACES come from
// places_here(). Ends with a newline.
[[nodiscard]] std::string dry_run_text(const launch::JobSpec& spec,
                                       const std::vector<launch::RankPlace>& places = {});

// Returns {"world_size", "workers": [{"rank", "host", "node_rank", "local_rank", "devices", "env",
// "command"}], …}, one line. "devices" lists CUDA_VISIBLE_DEVICES, as numbers if they are numbers;
// "env" has the variables that dslaunch adds to the worker's environment. With PLACES also
// "processors", "threads" and "memory_node" (null: any).
[[nodiscard]] std::string dry_run_json(const launch::JobSpec& spec,
                                       const std::vector<launch::RankPlace>& places = {});

}  // namespace dslaunch::launcher
