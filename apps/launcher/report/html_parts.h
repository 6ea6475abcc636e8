// The parts of the page of html_page.h. Each function returns HTML, or an empty text if RUNS have
// nothing for it. Pure.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "launcher/report/run_facts.h"

namespace dslaunch::launcher {

// Returns a table that scrolls sideways where it is too wide. All cells are escaped.
[[nodiscard]] std::string table_html(const ReportTable& table);
// Returns CONTENT under the heading TITLE; empty if CONTENT is empty.
[[nodiscard]] std::string section_html(std::string_view title, const std::string& content);
// Returns CONTENT folded under SUMMARY; a click on SUMMARY opens it. Empty if CONTENT is empty.
[[nodiscard]] std::string fold_html(const std::string& summary, const std::string& content);

// Returns the main facts of each run.
[[nodiscard]] std::string summary_html(std::span<const RunFolder> runs);
// Returns the parts of the folders that are missing or damaged, and warnings of the runs.
[[nodiscard]] std::string problems_html(std::span<const RunFolder> runs);
// Returns the curves.
[[nodiscard]] std::string charts_html(std::span<const RunFolder> runs);
// Returns the predicted and the measured memory and times, and the lanes of the traced step.
[[nodiscard]] std::string forecast_html(std::span<const RunFolder> runs);
// Returns the keys of the configs whose values differ between runs.
[[nodiscard]] std::string differences_html(std::span<const RunFolder> runs);
// Returns all keys of each config with the origin of each value.
[[nodiscard]] std::string configs_html(std::span<const RunFolder> runs);
// Returns hosts, ranks, checkpoints and the end of rank 0's log.
[[nodiscard]] std::string places_html(std::span<const RunFolder> runs);

}  // namespace dslaunch::launcher
