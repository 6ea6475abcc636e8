#include "launcher/report/chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>

#include "base/screen.h"
#include "base/text.h"

namespace dslaunch::launcher {
namespace {

constexpr double kDigitWidth = 6.8;   // of a tick's text, in pixels
constexpr size_t kMarksMax = 200;     // marks of a curve
constexpr size_t kNoisyPoints = 400;  // a curve with more points is faint, with its means over it
constexpr int kMeans = 120;
// Larger values are not drawn, for example if a loss has diverged. So the computations for a linear
// scale stay far below the largest double.
constexpr double kDrawnMax = 1e200;

bool is_drawn(double value) {
    return std::isfinite(value) && std::abs(value) < kDrawnMax;
}

// The place of the plot within a chart, with its scales.
class Plot {
  public:
    Plot(const Chart& chart, const ChartBox& box) : box_(box) {
        MetricPoint least{1e300, 1e300}, largest{-1e300, -1e300};
        for (const ChartCurve& curve : chart.curves) {
            for (const MetricPoint& point : curve.points) {
                least.step = std::min(least.step, point.step);
                largest.step = std::max(largest.step, point.step);
                if (!is_drawn(point.value)) continue;
                least.value = std::min(least.value, point.value);
                largest.value = std::max(largest.value, point.value);
            }
        }
        steps_ = least.step < largest.step
                     ? ChartScale{least.step, largest.step, false}
                     : fitted_scale(least.step, largest.step, ScaleWish::kFitted);
        values_ = fitted_scale(least.value, largest.value, chart.wish);
        rows_ = ticks_of(values_, std::max(2, box.height / 45));
        size_t widest = 1;
        for (const ChartTick& tick : rows_) widest = std::max(widest, columns_of(tick.text));
        left_ = 10 + kDigitWidth * static_cast<double>(widest);
    }

    [[nodiscard]] double x(double step) const {
        return left_ + steps_.part(step) * (right() - left_);
    }
    [[nodiscard]] double y(double value) const {
        return bottom() - values_.part(value) * (bottom() - kTop);
    }
    [[nodiscard]] double left() const { return left_; }
    [[nodiscard]] double right() const { return box_.width - 14; }
    [[nodiscard]] double bottom() const { return box_.height - 38; }
    [[nodiscard]] int columns() const { return static_cast<int>(right() - left_); }
    [[nodiscard]] const ChartScale& steps() const { return steps_; }

    // Returns the grid and the texts of both axes.
    [[nodiscard]] std::string axes() const {
        std::string svg;
        const auto to = std::back_inserter(svg);
        for (const ChartTick& tick : rows_) {
            const double at = y(tick.value);
            fmt::format_to(to, "<path class=\"grid\" d=\"M{:.1f} {:.1f}H{:.1f}\"/>", left_, at,
                           right());
            fmt::format_to(to, "<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"end\">{}</text>",
                           left_ - 5, at + 4, tick.text);
        }
        fmt::format_to(to, "<path class=\"axis\" d=\"M{:.1f} {:.1f}H{:.1f}\"/>", left_, bottom(),
                       right());
        for (const ChartTick& tick : ticks_of(steps_, std::max(2, columns() / 90))) {
            if (tick.value != std::floor(tick.value)) continue;  // there is no half step
            const double at = x(tick.value);
            const double half = kDigitWidth * static_cast<double>(columns_of(tick.text)) / 2;
            fmt::format_to(to, "<path class=\"axis\" d=\"M{:.1f} {:.1f}v4\"/>", at, bottom());
            fmt::format_to(to, "<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">{}</text>",
                           std::min(at, box_.width - half - 1), bottom() + 17, tick.text);
        }
        fmt::format_to(to, "<text x=\"{:.1f}\" y=\"{}\" text-anchor=\"middle\">step{}</text>",
                       (left_ + right()) / 2, box_.height - 5,
                       values_.is_log ? " (logarithmic values)" : "");
        return svg;
    }

  private:
    static constexpr double kTop = 8;

    ChartBox box_;
    double left_ = 0;
    ChartScale steps_, values_;
    std::vector<ChartTick> rows_;
};

// Returns the SVG path through POINTS. The path starts again after each value that is not drawn,
// and GAPS gets a mark for each of these values.
std::string path_of(const MetricSeries& points, const Plot& plot, std::string& gaps) {
    std::string path;
    bool is_open = false;
    for (size_t i = 0; i < points.size(); ++i) {
        const double x = plot.x(points[i].step);
        if (!is_drawn(points[i].value)) {
            is_open = false;
            gaps += fmt::format("M{:.1f} {:.1f}v-9", x, plot.bottom());
            continue;
        }
        const double y = plot.y(points[i].value);
        path += fmt::format("{}{:.1f} {:.1f}", is_open ? 'L' : 'M', x, y);
        // A point between two gaps is a dot: a path of no length with round ends.
        const bool is_alone =
            !is_open && (i + 1 == points.size() || !is_drawn(points[i + 1].value));
        if (is_alone) path += "h0";
        is_open = true;
    }
    return path;
}

void add_path(std::string& svg, const std::string& classes, const std::string& path) {
    if (path.empty()) return;
    svg += fmt::format("<path class=\"curve {}\" d=\"{}\"/>", classes, path);
}

std::string curve_svg(const ChartCurve& curve, const Plot& plot) {
    std::string svg, gaps;
    const std::string classes = curve.look.classes();
    const std::string path =
        path_of(thinned(curve.points, plot.steps(), plot.columns()), plot, gaps);
    const bool is_noisy = curve.points.size() > kNoisyPoints && !curve.has_marks;
    add_path(svg, is_noisy ? classes + " faint" : classes, path);
    if (is_noisy) {
        std::string unused;
        add_path(svg, classes,
                 path_of(column_means(curve.points, plot.steps(), kMeans), plot, unused));
    }
    if (!gaps.empty())
        svg += fmt::format("<path class=\"gap\" d=\"{}\"><title>not a number</title></path>", gaps);
    if (!curve.has_marks || curve.points.size() > kMarksMax) return svg;
    for (const MetricPoint& point : curve.points) {
        if (!is_drawn(point.value)) continue;
        svg += fmt::format(
            "<circle class=\"mark {}\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3\">"
            "<title>{}, step {}: {}</title></circle>",
            classes, plot.x(point.step), plot.y(point.value), escaped_markup(curve.name),
            number_text(point.step), number_text(point.value));
    }
    return svg;
}

std::string inner_svg(const Chart& chart, const ChartBox& box) {
    const Plot plot(chart, box);
    std::string svg = plot.axes();
    for (const ChartCurve& curve : chart.curves) svg += curve_svg(curve, plot);
    return svg;
}

std::string caption_of(const Chart& chart) {
    return chart.unit.empty() ? chart.title : chart.title + " (" + chart.unit + ")";
}

}  // namespace

std::string escaped_markup(std::string_view text) {
    std::string escaped;
    for (const char c : printable(text)) {
        switch (c) {
            case '&':
                escaped += "&amp;";
                break;
            case '<':
                escaped += "&lt;";
                break;
            case '>':
                escaped += "&gt;";
                break;
            case '"':
                escaped += "&quot;";
                break;
            case '\'':
                escaped += "&#39;";
                break;
            default:
                escaped += c;
        }
    }
    return escaped;
}

std::string CurveLook::classes() const {
    return fmt::format("c{} d{}", colour % kCurveColours, dash % kCurveDashes);
}

CurveLook CurveLook::of(size_t index) {
    const auto number = static_cast<int>(index % (kCurveColours * kCurveDashes));
    return {number % kCurveColours, number / kCurveColours};
}

bool has_values(const Chart& chart) {
    return std::ranges::any_of(chart.curves, [](const ChartCurve& curve) {
        return std::ranges::any_of(curve.points, is_drawn, &MetricPoint::value);
    });
}

std::string chart_words(const Chart& chart) {
    std::string words = caption_of(chart);
    for (const ChartCurve& curve : chart.curves) {
        MetricSeries drawn;
        std::ranges::copy_if(curve.points, std::back_inserter(drawn), is_drawn,
                             &MetricPoint::value);
        if (drawn.empty()) continue;
        const MetricPoint least = *std::ranges::min_element(drawn, {}, &MetricPoint::value);
        words += fmt::format("; {}: {} at step {}, {} at step {}, least {} at step {}", curve.name,
                             number_text(drawn.front().value), number_text(drawn.front().step),
                             number_text(drawn.back().value), number_text(drawn.back().step),
                             number_text(least.value), number_text(least.step));
    }
    return words;
}

std::string chart_svg(const Chart& chart, const ChartBox& box) {
    return fmt::format(
        "<svg class=\"chart\" viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"{}\">{}</svg>\n",
        box.width, box.height, escaped_markup(chart_words(chart)), inner_svg(chart, box));
}

std::string chart_document(const Chart& chart, const ChartBox& box) {
    constexpr int kHead = 34;
    std::string legend;
    int x = box.width - 14;
    for (size_t i = chart.curves.size(); chart.curves.size() > 1 && i-- > 0;) {
        const ChartCurve& curve = chart.curves[i];
        x -= static_cast<int>(kDigitWidth * static_cast<double>(columns_of(curve.name))) + 36;
        legend += fmt::format(
            "<path class=\"curve {}\" d=\"M{} 18h22\"/><text x=\"{}\" y=\"22\">{}</text>",
            curve.look.classes(), x, x + 27, escaped_markup(curve.name));
    }
    return fmt::format(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
        "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"chart\" width=\"{0}\" height=\"{1}\" "
        "viewBox=\"0 0 {0} {1}\" role=\"img\">\n<title>{2}</title>\n<style>{3}</style>\n"
        "<rect class=\"paper\" width=\"{0}\" height=\"{1}\"/>"
        "<text class=\"head\" x=\"12\" y=\"22\">{4}</text>{5}\n"
        "<g transform=\"translate(0 {6})\">{7}</g>\n</svg>\n",
        box.width, box.height + kHead, escaped_markup(chart_words(chart)), chart_css(),
        escaped_markup(caption_of(chart)), legend, kHead, inner_svg(chart, box));
}

std::string chart_legend(const Chart& chart) {
    if (chart.curves.size() < 2) return "";
    std::string html = "<ul class=\"legend\">";
    for (const ChartCurve& curve : chart.curves) {
        html += fmt::format(
            "<li><svg class=\"chart\" viewBox=\"0 0 26 10\" aria-hidden=\"true\">"
            "<path class=\"curve {}\" d=\"M2 5h22\"/></svg>{}</li>",
            curve.look.classes(), escaped_markup(curve.name));
    }
    return html + "</ul>\n";
}

std::string_view chart_css() {
    // The contrast with the paper is at least 3:1 for each colour, light and dark. Neighbouring
    // colours differ for people who do not see red or green.
    return R"(
:root{color-scheme:light dark;--paper:#fff;--ink:#1c2126;--soft:#57606a;--line:#d8dee4;
--c0:#0062a3;--c1:#c44f00;--c2:#00795c;--c3:#a3368e;--c4:#7a6200;
--c5:#2b7f9e;--c6:#b3202c;--c7:#555b61}
@media(prefers-color-scheme:dark){:root{
--paper:#14181d;--ink:#e6eaee;--soft:#a3adb7;--line:#343c45;
--c0:#5cb8f5;--c1:#ff9f5a;--c2:#3fd0a4;--c3:#e78fd0;--c4:#e5d04a;
--c5:#86d3e8;--c6:#ff7d85;--c7:#c3c9cf}}
.chart text{font:12px system-ui,sans-serif;fill:var(--soft)}
.chart text.head{font-size:15px;font-weight:600;fill:var(--ink)}
.chart .paper{fill:var(--paper)}
.chart .grid,.chart .axis{stroke:var(--line);fill:none}
.chart .axis{stroke:var(--soft)}
.chart .curve{fill:none;stroke-width:1.7;stroke-linejoin:round;stroke-linecap:round}
.chart .faint{opacity:.3;stroke-width:1}
.chart .gap{stroke:var(--c6);stroke-width:2;fill:none}
.c0{stroke:var(--c0)}.c1{stroke:var(--c1)}.c2{stroke:var(--c2)}.c3{stroke:var(--c3)}
.c4{stroke:var(--c4)}.c5{stroke:var(--c5)}.c6{stroke:var(--c6)}.c7{stroke:var(--c7)}
.d1{stroke-dasharray:7 5}.d2{stroke-dasharray:2 4}.d3{stroke-dasharray:9 4 2 4}
.chart .mark{stroke-width:1.5;fill:var(--paper);stroke-dasharray:none}
)";
}

}  // namespace dslaunch::launcher
