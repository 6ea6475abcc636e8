// What a bug report needs to know of one job: its record, its output folder, what dslaunch said of
// its end, the last lines of its ranks.
#pragma once

#include <string>
#include <vector>

#include "launcher/jobs/known_jobs.h"
#include "launcher/jobs/report.h"

namespace dslaunch::launcher {

// JOB as its record knows it; names of hosts and users go to MASK.
[[nodiscard]] std::vector<ReportSection> job_report(const KnownJob& job, NameMask& mask);

// An --output folder, whose job need not be recorded here. Throws Error{kInput} when FOLDER has no
// run.json.
[[nodiscard]] std::vector<ReportSection> folder_report(const std::string& folder, NameMask& mask);

}  // namespace dslaunch::launcher
