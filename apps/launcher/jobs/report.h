// The output of `dslaunch report`: sections of named facts and text, as text or JSON, with secrets
// hidden and names of hosts and users replaced. Pure.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace dslaunch::launcher {

struct ReportSection {
    std::string title;
    std::vector<std::pair<std::string, std::string>> facts;
    std::string text;  // lines, below the facts
};

// Replaces names by others that stay the same throughout a report.
class NameMask {
  public:
    // Replaces NAME by WORD1, WORD2, … where it is a whole word. An empty, numeric or known name
    // and `localhost` are left alone.
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

}  // namespace dslaunch::launcher
