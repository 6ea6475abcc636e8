// The output of `dslaunch report`: sections of named facts and text, as text or JSON, with secrets
// hidden and names of hosts and users replaced. Pure.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "launcher/jobs/known_jobs.h"

namespace dslaunch::launcher {

struct ReportSection {
    std::string title;
    std::vector<std::pair<std::string, std::string>> facts;
    std::string text;  // lines, below the facts
};

// Replaces names by others that stay the same throughout a report.
class NameMask {
  public:
    // Replaces NAME by WORD1, WORD2, … if it is a whole word. Ignores an empty, numeric or known
    // name and `localhost`.
    void add(const std::string& name, const std::string& word);
    [[nodiscard]] std::string apply(std::string_view text) const;

  private:
    std::vector<std::pair<std::string, std::string>> names_;
    std::vector<std::pair<std::string, int>> words_;  // words, with the number of their names
};

// All output passes through these two functions: secrets are hidden, then names masked, then
// control characters made visible.
[[nodiscard]] std::string report_text(const std::vector<ReportSection>& sections,
                                      const NameMask& mask);
[[nodiscard]] std::string report_json(const std::vector<ReportSection>& sections,
                                      const NameMask& mask);

// Returns the report of JOB from its record; adds names of hosts and users to MASK.
[[nodiscard]] std::vector<ReportSection> job_report(const KnownJob& job, NameMask& mask);

// Returns the report of an --output folder. Its job need not be recorded here. Throws Error{kInput}
// when FOLDER has no run.json.
[[nodiscard]] std::vector<ReportSection> folder_report(const std::string& folder, NameMask& mask);

// Reads /proc and /sys and runs a few programs, such as `ssh -V`, `nvidia-smi`, `ldd` of dsworker,
// each for 5 s at most. Missing parts are reported as missing.
[[nodiscard]] std::vector<ReportSection> machine_report();

// Returns the number of hosts and slots, and the fields of the hostfile's lines; no names. Throws
// as read_hostfile.
[[nodiscard]] ReportSection hostfile_report(const std::string& path, NameMask& mask);

}  // namespace dslaunch::launcher
