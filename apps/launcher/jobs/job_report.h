// The facts of one job for a bug report: its record, its output folder, dslaunch's messages at its
// end, the last lines of its ranks.
#pragma once

#include <string>
#include <vector>

#include "launcher/jobs/known_jobs.h"
#include "launcher/jobs/report.h"

namespace dslaunch::launcher {

// The report of JOB from its record; names of hosts and users go to MASK.
[[nodiscard]] std::vector<ReportSection> job_report(const KnownJob& job, NameMask& mask);

// The report of an --output folder, whose job need not be recorded here. Throws Error{kInput} when
// FOLDER has no run.json.
[[nodiscard]] std::vector<ReportSection> folder_report(const std::string& folder, NameMask& mask);

}  // namespace dslaunch::launcher
