// The output of --dry-run: the whole job, as a table for people or as JSON for programs. Pure,
// except places_here().
#pragma once

#include <string>
#include <vector>

#include "launch/plan/job_spec.h"
#include "launch/plan/launch_plan.h"

namespace dslaunch::launcher {

// Warns if a model's ranks outnumber this machine's processors. The start of the job gives the same
// warning.
void warn_of_crowd(const launch::JobSpec& spec);

// Returns the processors of each rank, in the order of the ranks. Returns an empty list unless all
// ranks run on this machine and are bound to processors. Reads this machine's topology. Throws
// Error{kUsage} under the same conditions as place_ranks().
[[nodiscard]] std::vector<launch::RankPlace> places_here(const launch::JobSpec& spec);

// Returns one line about the job as a whole, then one line for each rank with its host, numbers,
// devices and command, then the environment of rank 0, and the processors of each rank. PLACES come
// from places_here(). The text ends with a newline.
[[nodiscard]] std::string dry_run_text(const launch::JobSpec& spec,
                                       const std::vector<launch::RankPlace>& places = {});

// Returns one line: {"world_size", "workers": [{"rank", "host", "node_rank", "local_rank",
// "devices", "env", "command"}], …}. "devices" lists CUDA_VISIBLE_DEVICES, as numbers if they are
// numbers. "env" has the variables that dslaunch adds to the worker's environment. With PLACES,
// each worker also has "processors", "threads" and "memory_node" (null: any).
[[nodiscard]] std::string dry_run_json(const launch::JobSpec& spec,
                                       const std::vector<launch::RankPlace>& places = {});

}  // namespace dslaunch::launcher
