// The output of `dslaunch report`: sections of named facts and text, as text or JSON. Secrets are
// hidden, and names of hosts and users are replaced. Pure.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "launcher/jobs/known_jobs.h"

namespace dslaunch::launcher {

// A part of a report. Facts are pairs of a name and a value.
struct ReportSection {
    std::string title;
    std::vector<std::pair<std::string, std::string>> facts;
    std::string text;  // lines that follow the facts
};

// Replaces names by substitutes. Within a report, a name always gets the same substitute.
class NameMask {
  public:
    // Makes apply() replace NAME by WORD1, WORD2, … wherever it is a whole word. Ignores a name
    // that is empty, a number, `localhost`, or already known.
    void add(const std::string& name, const std::string& word);
    // Returns TEXT with the names replaced.
    [[nodiscard]] std::string apply(std::string_view text) const;

  private:
    std::vector<std::pair<std::string, std::string>> names_;
    std::vector<std::pair<std::string, int>> words_;  // each word, and its number of names
};

// All output passes through these two functions: they hide secrets, then replace names, then make
// control characters visible.
[[nodiscard]] std::string report_text(const std::vector<ReportSection>& sections,
                                      const NameMask& mask);
[[nodiscard]] std::string report_json(const std::vector<ReportSection>& sections,
                                      const NameMask& mask);

// Returns the report of JOB, made from its record. Adds the names of hosts and users to MASK.
[[nodiscard]] std::vector<ReportSection> job_report(const KnownJob& job, NameMask& mask);

// Returns the report of an --output folder. The job need not have a record on this machine. Throws
// Error{kInput} if FOLDER has no run.json.
[[nodiscard]] std::vector<ReportSection> folder_report(const std::string& folder, NameMask& mask);

// Returns the report on this machine. Reads /proc and /sys and runs a few programs, such as `ssh
// -V`, `nvidia-smi`, and `ldd` on dsworker, each for at most 5 s. Reports missing things as
// missing.
[[nodiscard]] std::vector<ReportSection> machine_report();

// Returns a summary of the hostfile at PATH: the number of hosts, and how many of them have each
// number of slots, gpus=, user@, port= or addr=. Adds the names in the hostfile to MASK. Throws the
// same errors as read_hostfile.
[[nodiscard]] ReportSection hostfile_report(const std::string& path, NameMask& mask);

}  // namespace dslaunch::launcher
