// The numbers of a metrics.jsonl as series over steps, for pictures and tables. Data path: a run's
// folder -> [here] -> charts. Damaged lines are counted and skipped. Pure; one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <istream>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace dslaunch::launcher {

// A value at a step. It is NaN if the file contains null, which stands for a number that is not
// finite.
struct MetricPoint {
    double step = 0;
    double value = 0;
};
using MetricSeries = std::vector<MetricPoint>;

// All numbers of a metrics.jsonl.
struct MetricsTable {
    // Series by name, each in ascending order of steps. The member `gradients` of the object
    // `memory` is named "memory.gradients". Deeper members, and members of lists, are left out.
    std::map<std::string, MetricSeries, std::less<>> series;
    int64_t damaged_lines = 0;
    int64_t skipped_steps = 0;    // steps without an update, because gradients were not finite
    int64_t repeated_steps = 0;   // steps that a restart did again: the last line counts
    bool has_more_names = false;  // more names than kNamesMax: the rest is left out

    static constexpr size_t kNamesMax = 300;

    // Returns the series NAME; null if it has no point.
    [[nodiscard]] const MetricSeries* find(std::string_view name) const;
    // Returns the last finite value of NAME; nothing if there is none.
    [[nodiscard]] std::optional<double> last(std::string_view name) const;
    // Return the smallest or largest finite value of NAME; nothing if there is none.
    [[nodiscard]] std::optional<MetricPoint> least(std::string_view name) const;
    [[nodiscard]] std::optional<MetricPoint> largest(std::string_view name) const;
    // Returns the median of the finite values of NAME; nothing if there is none. The first value
    // includes the warm-up of a run, so it is left out if there are further values.
    [[nodiscard]] std::optional<double> median(std::string_view name) const;
};

// Reads TEXT to its end, one line after the other. A line over 1 MiB counts as damaged.
[[nodiscard]] MetricsTable read_metrics_table(std::istream& text);

}  // namespace dslaunch::launcher
