// Axes of charts: the place of a value, the round numbers that are marked, and their texts. Also
// thins out long curves. Pure.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "launcher/report/metrics_table.h"

namespace dslaunch::launcher {

// A range of values, drawn linearly or by their logarithms. REQUIRES: FROM < TO; 0 < FROM if
// IS_LOG.
struct ChartScale {
    double from = 0;
    double to = 1;
    bool is_log = false;

    // Returns the position of VALUE on the axis: 0 for the value `from`, 1 for the value `to`.
    [[nodiscard]] double part(double value) const;
};

// A mark at a round number, with its text.
struct ChartTick {
    double value = 0;
    std::string text;
};

// Returns at most MOST marks within SCALE, in rising order and as close to each other as possible.
// On a linear scale, they are multiples of 1, 2 or 5 times a power of ten. On a logarithmic scale,
// they are powers of ten; if the range is short, also 2 and 5 times these. REQUIRES: MOST >= 2.
[[nodiscard]] std::vector<ChartTick> ticks_of(const ChartScale& scale, int most);

// Returns VALUE for people, with up to four digits: "0.0123", "3.142", "12,345", "2e-05",
// "1.2e+09".
[[nodiscard]] std::string number_text(double value);

// The kinds of scale that a chart may ask for.
enum class ScaleWish {
    kFitted,    // linear, as wide as the values
    kFromZero,  // linear, with 0
    kLogIfWide  // logarithmic if all values are positive and the largest is over 10 times the least
};
// Returns a scale that includes LEAST and LARGEST if they are finite, with some room at both ends.
// If LEAST and LARGEST are equal, this value is in the middle of the scale.
[[nodiscard]] ChartScale fitted_scale(double least, double largest, ScaleWish wish);

// Returns the points of SERIES between the steps FROM and TO that a picture of COLUMNS columns
// needs. In each column, it keeps the first, the least, the largest and the last point, in their
// order, so that each spike stays. A value that is not finite stays as a gap.
[[nodiscard]] MetricSeries thinned(std::span<const MetricPoint> series, const ChartScale& steps,
                                   int columns);

// Divides STEPS into COLUMNS equal parts. Returns a point for each part: the mean of the finite
// values of SERIES in the part, at the mean of their steps. The points show the course of a noisy
// curve.
[[nodiscard]] MetricSeries column_means(std::span<const MetricPoint> series,
                                        const ChartScale& steps, int columns);

}  // namespace dslaunch::launcher
