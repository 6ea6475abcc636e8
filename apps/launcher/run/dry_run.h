// What --dry-run prints: the whole job as a table for people or as JSON for programs. Pure, but
// for places_here().
#pragma once

#include <string>
#include <vector>

#include "launch/plan/job_spec.h"
#include "launch/plan/placement.h"

namespace dslaunch::launcher {

// Where each rank would run, by rank, when all of them run on this machine; else empty, as when
// nobody is bound. Reads this machine's topology. Throws Error{kUsage} as place_ranks() does.
[[nodiscard]] std::vector<launch::RankPlace> places_here(const launch::JobSpec& spec);

// A line for each host with its transport and working directory, then for each rank its place,
// devices, command; the environment of rank 0; the processors of each rank. PLACES:
// of places_here(). Ends with a newline.
[[nodiscard]] std::string dry_run_text(const launch::JobSpec& spec,
                                       const std::vector<launch::RankPlace>& places = {});

// {"world_size", "workers": [{"rank", "host", "node_rank", "local_rank", "devices", "env",
// "command"}], …}, one line. "devices" is what CUDA_VISIBLE_DEVICES lists, numbers where they are
// numbers; "env" is what dslaunch adds to the worker's environment. With PLACES also "processors",
// "threads" and "memory_node" (null: any).
[[nodiscard]] std::string dry_run_json(const launch::JobSpec& spec,
                                       const std::vector<launch::RankPlace>& places = {});

}  // namespace dslaunch::launcher
