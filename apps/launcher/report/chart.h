// Charts of curves over steps as SVG, for the page of `dslaunch report --html` and for loss.svg.
// Data path: MetricsTable -> [here] -> html_page.h, loss_picture.h. Colours are classes, which
// chart_css() defines for light and dark screens. All text is escaped. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "launcher/report/chart_scale.h"

namespace dslaunch::launcher {

// Returns TEXT for the content and the quoted attributes of HTML and SVG. Control characters and
// bytes that are not UTF-8 become visible, since XML forbids them.
[[nodiscard]] std::string escaped_markup(std::string_view text);

// The look of a curve: a colour and dashes, each counted from 0. There are kCurveColours *
// kCurveDashes looks; then they repeat.
struct CurveLook {
    int colour = 0;
    int dash = 0;

    // Returns the CSS classes of the look, for example "c3 d1".
    [[nodiscard]] std::string classes() const;
    // Returns the look of curve number INDEX. Curves have different looks until the looks repeat.
    [[nodiscard]] static CurveLook of(size_t index);
};
inline constexpr int kCurveColours = 8;
inline constexpr int kCurveDashes = 4;

// One curve of a chart.
struct ChartCurve {
    std::string name;
    CurveLook look;
    MetricSeries points;     // steps rise; a value that is not finite is a gap with a mark
    bool has_marks = false;  // a mark with its values at each point
};

// A chart of curves over the same steps.
struct Chart {
    std::string title;
    std::string unit;  // shown after the title; empty: plain numbers
    ScaleWish wish = ScaleWish::kFitted;
    std::vector<ChartCurve> curves;
};

// The size of a chart in CSS pixels.
struct ChartBox {
    int width = 480;
    int height = 260;
};

// Returns true if a curve of CHART has a finite value.
[[nodiscard]] bool has_values(const Chart& chart);
// Returns a text about each curve, for screen readers: "loss: 11.2 at step 1, 2.31 at step 900,
// least 2.30 at step 880".
[[nodiscard]] std::string chart_words(const Chart& chart);
// Returns an <svg> element with axes and curves. If a curve has many points, they are drawn
// faintly, and a line through their means is drawn over them. REQUIRES: has_values(CHART), and BOX
// is at least 200 x 120.
[[nodiscard]] std::string chart_svg(const Chart& chart, const ChartBox& box);
// Returns an SVG document with the title, the legend and the chart.
[[nodiscard]] std::string chart_document(const Chart& chart, const ChartBox& box);
// Returns the names of CHART's curves with their looks as an HTML list; empty for one curve.
[[nodiscard]] std::string chart_legend(const Chart& chart);
// Returns the CSS rules of charts.
[[nodiscard]] std::string_view chart_css();

}  // namespace dslaunch::launcher
