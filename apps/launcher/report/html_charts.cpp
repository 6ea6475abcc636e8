// The curves of the page, and the predicted values beside them.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "launcher/report/chart.h"
#include "launcher/report/html_parts.h"
#include "launcher/report/run_trace.h"

namespace dslaunch::launcher {
namespace {

constexpr ChartBox kSmall{380, 230};
constexpr ChartBox kWide{1120, 320};

// The unit of a chart's numbers.
enum class Measure { kNumber, kBytes, kMilliseconds, kShare };

// One curve of a chart: a series or, if is_sum is true, the growth of the series in each step.
struct CurvePlan {
    std::string series;
    std::string name;
    bool is_sum = false;  // the file has the sum since the start
    bool has_marks = false;
    int dash = 0;
};

// A chart of a page. With several runs, each curve is drawn for each run.
struct ChartPlan {
    std::string title;
    const char* unit;
    Measure measure;
    ScaleWish wish;
    std::vector<CurvePlan> curves;
};

std::vector<ChartPlan> loss_plans() {
    return {{"Loss",
             "",
             Measure::kNumber,
             ScaleWish::kLogIfWide,
             {{"loss", "loss"}, {"eval_loss", "held-out loss", false, true, 1}}}};
}

// Returns the chart of the kinds of work in a step. Only runs with wall_clock_breakdown have these
// numbers.
ChartPlan breakdown_plan(std::span<const RunFolder> runs) {
    constexpr std::string_view kPrefix = "breakdown_ms.";
    ChartPlan plan{
        "Work of rank 0 in a step", "", Measure::kMilliseconds, ScaleWish::kFromZero, {}};
    std::set<std::string> names;
    for (const RunFolder& run : runs)
        for (const auto& [name, series] : run.metrics.series)
            if (name.starts_with(kPrefix)) names.insert(name);
    for (const std::string& name : names)
        plan.curves.push_back({name, name.substr(kPrefix.size())});
    return plan;
}

std::vector<ChartPlan> kinds_of_charts() {
    using enum Measure;
    using enum ScaleWish;
    return {{"Learning rate", "", kNumber, kFromZero, {{"lr", "learning rate"}}},
            {"Gradient norm", "", kNumber, kLogIfWide, {{"grad_norm", "gradient norm"}}},
            {"Speed", "tokens/s, all ranks", kNumber, kFromZero, {{"tokens_per_s", "tokens/s"}}},
            {"Speed", "samples/s, all ranks", kNumber, kFromZero, {{"samples_per_s", "samples/s"}}},
            {"Time of a step", "", kMilliseconds, kLogIfWide, {{"step_ms", "whole step"}}},
            {"Waits in a step",
             "",
             kMilliseconds,
             kFromZero,
             {{"lane_wait_ms", "for other lanes"}, {"data_wait_ms", "for data"}}},
            {"MFU", "%", kShare, kFromZero, {{"mfu", "MFU"}}},
            {"Work of a rank", "TFLOP/s", kNumber, kFromZero, {{"tflops", "TFLOP/s"}}},
            {"Resident memory",
             "",
             kBytes,
             kFromZero,
             {{"rss_bytes", "now"}, {"peak_rss_bytes", "largest so far"}}},
            {"Memory by tier",
             "",
             kBytes,
             kFromZero,
             {{"tier_bytes.memory", "memory"},
              {"tier_bytes.shared", "shared"},
              {"tier_bytes.disk", "disk"},
              {"tier_bytes.device", "device"}}},
            {"Memory by kind",
             "",
             kBytes,
             kFromZero,
             {{"memory.parameters", "parameters"},
              {"memory.gradients", "gradients"},
              {"memory.master", "master"},
              {"memory.moments", "moments"},
              {"memory.staging", "staging"},
              {"memory.swap_buffers", "swap buffers"},
              {"memory.activations", "activations"},
              {"memory.live_values", "live values"}}},
            {"Links of rank 0",
             "a step",
             kBytes,
             kFromZero,
             {{"link_bytes.sent", "sent", true}, {"link_bytes.received", "received", true}}},
            {"Disk of rank 0",
             "a step",
             kBytes,
             kFromZero,
             {{"disk_bytes.read", "read", true}, {"disk_bytes.written", "written", true}}},
            {"Rewards",
             "",
             kNumber,
             kFitted,
             {{"rewards/chosen", "chosen"},
              {"rewards/rejected", "rejected"},
              {"rewards/margins", "margins"},
              {"rewards/accuracies", "accuracies"}}},
            {"Loss scale", "", kNumber, kLogIfWide, {{"loss_scale", "loss scale"}}}};
}

// Returns the charts below the loss. With one run, related curves share a chart; with several runs
// each curve has its own chart.
std::vector<ChartPlan> other_plans(std::span<const RunFolder> runs) {
    std::vector<ChartPlan> plans = kinds_of_charts();
    if (ChartPlan breakdown = breakdown_plan(runs); !breakdown.curves.empty())
        plans.push_back(std::move(breakdown));
    if (runs.size() == 1) return plans;
    std::vector<ChartPlan> single;
    for (const ChartPlan& plan : plans) {
        for (const CurvePlan& curve : plan.curves) {
            single.push_back(plan);
            single.back().curves = {curve};
            if (plan.curves.size() > 1) single.back().title += ": " + curve.name;
        }
    }
    return single;
}

// Returns the growth of SUMS from each step to the next.
MetricSeries growth_of(const MetricSeries& sums) {
    MetricSeries growth;
    for (size_t i = 1; i < sums.size(); ++i) {
        // After a restart, the sum begins at 0 again.
        const double more = sums[i].value - sums[i - 1].value;
        growth.push_back({sums[i].step, more >= 0 ? more : sums[i].value});
    }
    return growth;
}

bool is_all_zero(const MetricSeries& series) {
    return std::ranges::all_of(series, [](const MetricPoint& point) { return point.value == 0; });
}

bool is_constant(const MetricSeries& series) {
    return std::ranges::all_of(
        series, [&](const MetricPoint& point) { return point.value == series.front().value; });
}

void rescale(Chart& chart, double divisor) {
    for (ChartCurve& curve : chart.curves)
        for (MetricPoint& point : curve.points) point.value /= divisor;
}

// Chooses the unit of CHART so that its numbers are short.
void choose_unit(Chart& chart, Measure measure) {
    double largest = 0;
    for (const ChartCurve& curve : chart.curves)
        for (const MetricPoint& point : curve.points)
            if (std::isfinite(point.value)) largest = std::max(largest, std::abs(point.value));
    std::string unit;
    if (measure == Measure::kBytes) {
        constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
        size_t power = 0;
        for (; largest >= 1024 && power + 1 < std::size(kUnits); ++power) {
            largest /= 1024;
            rescale(chart, 1024);
        }
        unit = kUnits[power];
    } else if (measure == Measure::kMilliseconds) {
        const bool is_long = largest >= 10'000;
        unit = is_long ? "s" : "ms";
        if (is_long) rescale(chart, 1000);
    } else if (measure == Measure::kShare) {
        rescale(chart, 0.01);
    }
    if (!unit.empty()) chart.unit = chart.unit.empty() ? unit : unit + " " + chart.unit;
}

std::string curve_name(const CurvePlan& curve, const ChartPlan& plan, const RunFolder& run,
                       bool is_one) {
    if (is_one) return curve.name;
    return plan.curves.size() > 1 ? run.name + ": " + curve.name : run.name;
}

Chart chart_of(const ChartPlan& plan, std::span<const RunFolder> runs) {
    const bool is_one = runs.size() == 1;
    Chart chart{plan.title, plan.unit, plan.wish, {}};
    for (size_t r = 0; r < runs.size(); ++r) {
        for (size_t c = 0; c < plan.curves.size(); ++c) {
            const CurvePlan& curve = plan.curves[c];
            const MetricSeries* const series = runs[r].metrics.find(curve.series);
            if (series == nullptr) continue;
            const MetricSeries points = curve.is_sum ? growth_of(*series) : *series;
            if (plan.measure != Measure::kNumber && is_all_zero(points)) continue;
            CurveLook look = CurveLook::of(is_one ? c : r);
            if (!is_one && curve.dash > 0) look.dash = (look.dash + curve.dash) % kCurveDashes;
            chart.curves.push_back(
                {curve_name(curve, plan, runs[r], is_one), look, points, curve.has_marks});
        }
    }
    choose_unit(chart, plan.measure);
    return chart;
}

// Returns true if CHART would show nothing new: only constant lines, whose numbers are in a table
// or in another chart.
bool says_nothing(const ChartPlan& plan, const Chart& chart, std::span<const RunFolder> runs) {
    const std::string_view first = plan.curves[0].series;
    if (first == "samples_per_s")
        return std::ranges::any_of(runs, [](const RunFolder& run) {
            return run.metrics.last("tokens_per_s").has_value();
        });
    if (first != "loss_scale" && runs.size() == 1) return false;
    return std::ranges::all_of(chart.curves, is_constant, &ChartCurve::points);
}

std::string figure_html(const Chart& chart, bool is_wide) {
    const std::string unit =
        chart.unit.empty() ? "" : fmt::format(" <span>{}</span>", escaped_markup(chart.unit));
    std::string html =
        fmt::format("<figure{}><figcaption>{}{}</figcaption>{}", is_wide ? " class=\"wide\"" : "",
                    escaped_markup(chart.title), unit, chart_legend(chart));
    if (is_wide) {
        html += "<div class=\"only-wide\">" + chart_svg(chart, kWide) +
                "</div><div class=\"only-narrow\">" + chart_svg(chart, kSmall) + "</div>";
    } else {
        html += chart_svg(chart, kSmall);
    }
    return html + "</figure>\n";
}

std::string peak_bytes(const std::optional<MetricPoint>& value) {
    return value ? to_text(Bytes{static_cast<int64_t>(value->value)}) : "";
}

ReportTable memory_rows(std::span<const RunFolder> runs) {
    ReportTable table{{"run", "predicted for a rank", "measured at most", "planned in memory",
                       "shared", "on disk", "on the device"},
                      {}};
    for (const RunFolder& run : runs) {
        const std::string measured = run.measured_memory.empty()
                                         ? peak_bytes(run.metrics.largest("peak_rss_bytes"))
                                         : run.measured_memory;
        std::vector<std::string> row = {run.name, run.predicted_memory, measured};
        for (const char* tier : {"memory", "shared", "disk", "device"})
            row.push_back(peak_bytes(run.metrics.largest(std::string("tier_bytes.") + tier)));
        if (!measured.empty()) table.rows.push_back(row);
    }
    return table;
}

std::string lanes_html(const RunFolder& run, bool has_name) {
    if (run.trace.spans.empty()) return "";
    const std::string name = has_name ? ", " + escaped_markup(run.name) : "";
    return fmt::format(
        "<figure class=\"wide\"><figcaption>Lanes of one step of rank 0{} <span>above: measured; "
        "below and paler: predicted</span></figcaption>{}<div class=\"only-wide\">{}</div>"
        "<div class=\"only-narrow\">{}</div></figure>\n{}",
        name, trace_legend(run.trace), trace_svg(run.trace, kWide.width),
        trace_svg(run.trace, kSmall.width), table_html(trace_rows(run.trace)));
}

}  // namespace

std::string charts_html(std::span<const RunFolder> runs) {
    std::string html;
    for (const ChartPlan& plan : loss_plans())
        if (const Chart chart = chart_of(plan, runs); has_values(chart))
            html += figure_html(chart, true);
    std::string small;
    for (const ChartPlan& plan : other_plans(runs)) {
        const Chart chart = chart_of(plan, runs);
        if (says_nothing(plan, chart, runs)) continue;
        if (has_values(chart)) small += figure_html(chart, false);
    }
    if (!small.empty()) html += "<div class=\"grid-of-charts\">\n" + small + "</div>\n";
    return html;
}

std::string forecast_html(std::span<const RunFolder> runs) {
    const ReportTable memory = memory_rows(runs);
    std::string html = memory.rows.empty() ? "" : table_html(memory);
    bool has_trace = false;
    for (const RunFolder& run : runs) {
        html += lanes_html(run, runs.size() > 1);
        has_trace = has_trace || !run.trace.spans.empty();
    }
    if (!html.empty() && !has_trace)
        html +=
            "<p class=\"soft\">A run with <code>--set dslaunch.trace_step=20</code> also shows the "
            "predicted and the measured time of each lane in step 20.</p>\n";
    return html;
}

}  // namespace dslaunch::launcher
