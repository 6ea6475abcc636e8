// The facts about a run that its folder holds. Data path: run.json, metrics.jsonl, logs/rank-0.log,
// trace.json, checkpoints/ -> [here] -> pages. Parts that are missing or damaged are listed as
// problems. Secrets of known forms are hidden. One thread; reads files.
#pragma once

#include <string>

#include "launcher/jobs/known_jobs.h"
#include "launcher/report/run_facts.h"

namespace dslaunch::launcher {

// Returns the facts in the folder PATH. JOB: the run's record, or null. Throws Error{kInput} if
// PATH is not a folder, or if it has neither run.json nor metrics.jsonl nor logs.
[[nodiscard]] RunFolder read_run_folder(const std::string& path, const KnownJob* job);

}  // namespace dslaunch::launcher
