// The screen of `dslaunch top`: lines for a terminal, and JSON. Pure.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/top/job_view.h"

namespace dslaunch::launcher {

// The size of a terminal in characters.
struct ScreenSize {
    size_t columns = 80;
    size_t rows = 0;  // 0: without limit
};

// Divides the steps of SERIES into equal parts. Returns a line of at most WIDTH characters, with
// the mean of the finite values in each part, from ▁ (least) to █ (largest). Empty if there are no
// finite values.
[[nodiscard]] std::string sparkline(const MetricSeries& series, size_t width);

// Returns the screen of one job at NOW, in seconds of Unix time. No line is wider than SIZE; if
// there are too many ranks, the last line says how many are left out.
[[nodiscard]] std::vector<std::string> job_screen(const JobView& view, int64_t now,
                                                  const ScreenSize& size);
// Returns the screen of several running jobs: one line for each.
[[nodiscard]] std::vector<std::string> jobs_screen(std::span<const JobView> views, int64_t now,
                                                   const ScreenSize& size);
// Returns {"jobs": [...]} with the numbers of the screens, without a newline at the end.
[[nodiscard]] std::string views_json(std::span<const JobView> views, int64_t now);

}  // namespace dslaunch::launcher
