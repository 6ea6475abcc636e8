// The page of `dslaunch report --html`: runs side by side as one file of HTML with its pictures and
// colours in it. The page contains no script, and its policy forbids scripts, so that a name or a
// message in a folder can do nothing. Data path: RunFolder -> [here] -> a file. Pure.
#pragma once

#include <span>
#include <string>

#include "launcher/report/run_facts.h"

namespace dslaunch::launcher {

// The largest number of runs on one page. Up to this number, the curves of the runs differ in
// colours or dashes.
inline constexpr size_t kRunsMax = 32;

// Returns the page about RUNS, whose names differ. MADE is a text for the foot: when, and by which
// version, the page was made.
[[nodiscard]] std::string html_page(std::span<const RunFolder> runs, const std::string& made);

// Gives different names to runs that have the same name: their paths, or numbers.
void name_apart(std::span<RunFolder> runs);

}  // namespace dslaunch::launcher
