#include "launcher/report/run_trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <exception>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>

#include "base/fd.h"
#include "base/screen.h"
#include "launcher/report/chart.h"

namespace dslaunch::launcher {
namespace {

using Json = nlohmann::json;

constexpr size_t kTraceBytesMax = 256U << 20;
constexpr int kBar = 13;      // height of a bar
constexpr int kRowHead = 15;  // a lane's name
constexpr int kRow = kRowHead + 2 * kBar + 8;

// Reads the events of one trace.
class TraceReader {
  public:
    explicit TraceReader(RunTrace& trace) : trace_(trace) {}

    void add(const Json& event) {
        const int64_t lane = event.at("tid").get<int64_t>();
        const std::string form = event.at("ph").get<std::string>();
        if (form == "M" && event.at("name") == "thread_name") {
            names_[lane] = event.at("args").at("name").get<std::string>();
        } else if (form == "X") {
            const double begin = event.at("ts").get<double>() / 1e3;
            const double length = event.at("dur").get<double>() / 1e3;
            if (!std::isfinite(begin) || !std::isfinite(length) || length < 0) return;
            trace_.spans.push_back({index_of(lane), event.at("cat").get<std::string>(), begin,
                                    begin + length, event.at("pid") == 1});
        }
    }

  private:
    size_t index_of(int64_t lane) {
        const auto [place, is_new] = lanes_.try_emplace(lane, trace_.lanes.size());
        if (is_new)
            trace_.lanes.push_back(names_.contains(lane) ? names_[lane]
                                                         : fmt::format("lane {}", lane));
        return place->second;
    }

    RunTrace& trace_;
    std::map<int64_t, std::string> names_;
    std::map<int64_t, size_t> lanes_;
};

double end_of(const RunTrace& trace, bool is_predicted) {
    double end = 0;
    for (const RunTraceSpan& span : trace.spans)
        if (span.is_predicted == is_predicted) end = std::max(end, span.end_ms);
    return end;
}

// Returns the kinds of instructions in TRACE, in the order in which they appear.
std::vector<std::string> kinds_of(const RunTrace& trace) {
    std::vector<std::string> kinds;
    for (const RunTraceSpan& span : trace.spans)
        if (std::ranges::find(kinds, span.kind) == kinds.end()) kinds.push_back(span.kind);
    return kinds;
}

// Returns the bars of one lane. Spans of one kind that touch each other in the picture are one bar,
// so that a picture has no more bars than columns.
std::string bars_of(const RunTrace& trace, size_t lane, bool is_predicted, double pixels_per_ms) {
    const std::vector<std::string> kinds = kinds_of(trace);
    std::vector<RunTraceSpan> bars;
    std::vector<RunTraceSpan> spans;
    std::ranges::copy_if(trace.spans, std::back_inserter(spans), [&](const RunTraceSpan& span) {
        return span.lane == lane && span.is_predicted == is_predicted;
    });
    std::ranges::stable_sort(spans, {}, &RunTraceSpan::begin_ms);
    for (const RunTraceSpan& span : spans) {
        const bool touches = !bars.empty() &&
                             (span.begin_ms - bars.back().end_ms) * pixels_per_ms < 0.5 &&
                             (bars.back().kind == span.kind ||
                              (span.end_ms - bars.back().begin_ms) * pixels_per_ms < 1);
        if (touches) {
            bars.back().end_ms = std::max(bars.back().end_ms, span.end_ms);
        } else {
            bars.push_back(span);
        }
    }
    const size_t y = lane * kRow + kRowHead + (is_predicted ? kBar + 1 : 0);
    std::string svg;
    for (const RunTraceSpan& bar : bars) {
        const auto kind = std::ranges::find(kinds, bar.kind) - kinds.begin();
        svg += fmt::format(
            "<rect class=\"f{}{}\" x=\"{:.1f}\" y=\"{}\" width=\"{:.1f}\" height=\"{}\">"
            "<title>{}{}, {:.2f} to {:.2f} ms</title></rect>",
            kind % kCurveColours, is_predicted ? " soft" : "", bar.begin_ms * pixels_per_ms, y,
            std::max(0.6, (bar.end_ms - bar.begin_ms) * pixels_per_ms), kBar,
            escaped_markup(bar.kind), is_predicted ? " (predicted)" : "", bar.begin_ms, bar.end_ms);
    }
    return svg;
}

}  // namespace

void read_run_trace(RunFolder& run) {
    try {
        const Json trace = Json::parse(read_file(run.path + "/trace.json", kTraceBytesMax));
        TraceReader reader(run.trace);
        for (const Json& event : trace.at("traceEvents")) reader.add(event);
    } catch (const std::exception& error) {
        run.trace = {};
        run.problems.push_back(fmt::format("trace.json: cannot be read: {}", error.what()));
    }
}

std::string trace_svg(const RunTrace& trace, int width) {
    const double end = std::max(end_of(trace, false), end_of(trace, true));
    if (end <= 0) return "";
    const double pixels_per_ms = (width - 20) / end;
    const size_t height = trace.lanes.size() * kRow + 34;
    std::string svg = fmt::format(
        "<svg class=\"chart\" viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"lanes of a step: "
        "measured {:.2f} ms, predicted {:.2f} ms\">",
        width, height, end_of(trace, false), end_of(trace, true));
    const auto to = std::back_inserter(svg);
    for (size_t lane = 0; lane < trace.lanes.size(); ++lane) {
        fmt::format_to(to, "<text x=\"0\" y=\"{}\">{}</text>", lane * kRow + 11,
                       escaped_markup(trace.lanes[lane]));
        svg +=
            bars_of(trace, lane, false, pixels_per_ms) + bars_of(trace, lane, true, pixels_per_ms);
    }
    const ChartScale scale{0, end, false};
    const size_t floor = height - 30;
    fmt::format_to(to, "<path class=\"axis\" d=\"M0 {}H{}\"/>", floor, width - 20);
    for (const ChartTick& tick : ticks_of(scale, std::max(2, width / 90))) {
        const double at = tick.value * pixels_per_ms;
        const double half = 3.4 * static_cast<double>(columns_of(tick.text) + 3);
        fmt::format_to(to, "<path class=\"axis\" d=\"M{:.1f} {}v4\"/>", at, floor);
        fmt::format_to(to, "<text x=\"{:.1f}\" y=\"{}\" text-anchor=\"middle\">{} ms</text>",
                       std::clamp(at, half, width - half), floor + 18, tick.text);
    }
    return svg + "</svg>\n";
}

std::string trace_legend(const RunTrace& trace) {
    std::string html = "<ul class=\"legend\">";
    size_t number = 0;
    for (const std::string& kind : kinds_of(trace))
        html += fmt::format(
            "<li><svg class=\"chart\" viewBox=\"0 0 26 10\" aria-hidden=\"true\">"
            "<rect class=\"f{}\" x=\"2\" width=\"22\" height=\"10\"/></svg>{}</li>",
            number++ % kCurveColours, escaped_markup(kind));
    return html + "</ul>\n";
}

ReportTable trace_rows(const RunTrace& trace) {
    ReportTable table{{"lane", "measured ms", "predicted ms"}, {}};
    const bool has_forecast = end_of(trace, true) > 0;
    const auto add = [&](const std::string& name, double measured, double predicted) {
        table.rows.push_back({name, fmt::format("{:.2f}", measured),
                              has_forecast ? fmt::format("{:.2f}", predicted) : "not measured"});
    };
    for (size_t lane = 0; lane < trace.lanes.size(); ++lane) {
        double busy[2] = {0, 0};
        for (const RunTraceSpan& span : trace.spans)
            if (span.lane == lane) busy[span.is_predicted ? 1 : 0] += span.end_ms - span.begin_ms;
        add(trace.lanes[lane], busy[0], busy[1]);
    }
    add("whole step", end_of(trace, false), end_of(trace, true));
    return table;
}

}  // namespace dslaunch::launcher
