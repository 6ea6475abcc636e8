#include "launcher/top/job_screen.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iterator>
#include <limits>
#include <optional>

#include "base/bytes.h"
#include "base/terminal/moving_line.h"
#include "base/text.h"
#include "base/text/json.h"
#include "base/text/text_table.h"
#include "launcher/report/chart_scale.h"

namespace dslaunch::launcher {
namespace {

std::string amount_text(double bytes) {
    return to_text(Bytes{static_cast<int64_t>(bytes)});
}

// Adds TEXT to LINE, a line of facts that are separated by two blanks.
void add_field(std::string& line, const std::string& text) {
    if (!line.empty()) line += "  ";
    line += text;
}

std::string model_name(const KnownJob& job) {
    return printable(std::filesystem::path(job.target).filename().string());
}

int64_t running_s(const KnownJob& job, int64_t now) {
    return (job.ended_at_s != 0 ? job.ended_at_s : now) - job.started_at_s;
}

std::string head_line(const JobView& view, int64_t now) {
    const KnownJob& job = view.job;
    return fmt::format("job {}  {}  {}  {} on {}  {}", job.id, model_name(job), state_text(job),
                       counted(job.world_size, "rank"), counted(job.hosts_in_use(), "host"),
                       age_text(running_s(job, now)));
}

std::string step_line(const JobView& view) {
    std::string line;
    const auto step = view.step();
    if (!step) return "no step yet";
    add_field(line, view.steps
                        ? fmt::format("step {} of {}", number_text(static_cast<double>(*step)),
                                      number_text(static_cast<double>(*view.steps)))
                        : "step " + number_text(static_cast<double>(*step)));
    if (const auto loss = view.metrics.last("loss"))
        add_field(line, fmt::format("loss {:.4f}", *loss));
    else if (view.metrics.find("loss") != nullptr)
        add_field(line, "loss not a number");
    if (const auto loss = view.metrics.last("eval_loss"))
        add_field(line, fmt::format("held-out {:.4f}", *loss));
    if (const auto rate = view.metrics.last("lr")) add_field(line, "lr " + number_text(*rate));
    if (const auto left = view.left_s(); left && view.job.lives)
        add_field(line, "left " + clock_text(*left));
    return line;
}

std::string speed_line(const JobView& view) {
    const MetricsTable& metrics = view.metrics;
    std::string line;
    if (const auto speed = metrics.last("tokens_per_s"))
        add_field(line, rate_number(*speed) + " tokens/s");
    else if (const auto samples = metrics.last("samples_per_s"))
        add_field(line, rate_number(*samples) + " samples/s");
    if (const auto time = metrics.last("step_ms"))
        add_field(line, fmt::format("{:.0f} ms a step", *time));
    if (const auto wait = metrics.last("lane_wait_ms"))
        add_field(line, fmt::format("waits: {:.0f} ms for lanes, {:.0f} ms for data", *wait,
                                    metrics.last("data_wait_ms").value_or(0)));
    if (const auto mfu = metrics.last("mfu"))
        add_field(line, fmt::format("MFU {:.0f} %", *mfu * 100));
    return line;
}

std::string memory_line(const JobView& view) {
    const MetricsTable& metrics = view.metrics;
    std::string line;
    if (const auto now = metrics.last("rss_bytes")) add_field(line, "memory " + amount_text(*now));
    if (const auto peak = metrics.last("peak_rss_bytes"))
        add_field(line, fmt::format("(peak {})", amount_text(*peak)));
    return line;
}

std::string tier_line(const JobView& view) {
    std::string tiers;
    for (const char* tier : {"memory", "shared", "disk", "device"}) {
        const auto bytes = view.metrics.last(std::string("tier_bytes.") + tier);
        if (bytes && *bytes > 0) add_field(tiers, fmt::format("{} {}", tier, amount_text(*bytes)));
    }
    return tiers.empty() ? "" : "planned for rank 0: " + tiers;
}

std::string traffic_line(const JobView& view) {
    std::string line;
    const auto pair = [&](const char* what, const char* out, const char* out_name, const char* in,
                          const char* in_name) {
        const auto first = view.newest_growth(out);
        const auto second = view.newest_growth(in);
        if (!first || !second || (*first == 0 && *second == 0)) return;
        add_field(line, fmt::format("{} {} {}, {} {} a step", what, amount_text(*first), out_name,
                                    amount_text(*second), in_name));
    };
    pair("links", "link_bytes.sent", "sent", "link_bytes.received", "received");
    pair("disk", "disk_bytes.read", "read", "disk_bytes.written", "written");
    return line;
}

std::string loss_line(const JobView& view, size_t columns) {
    const MetricSeries* const loss = view.metrics.find("loss");
    if (loss == nullptr || loss->size() < 2) return "";
    const std::string steps = fmt::format("  steps {} to {}", number_text(loss->front().step),
                                          number_text(loss->back().step));
    const size_t taken = std::string_view("loss ").size() + steps.size();
    return "loss " + sparkline(*loss, std::min<size_t>(60, columns - std::min(columns, taken))) +
           steps;
}

// Returns the lanes that a rank has, in the order in which they appear.
std::vector<std::string> lanes_of(const JobView& view) {
    std::vector<std::string> lanes;
    for (const RankView& rank : view.ranks)
        for (const auto& [lane, time] : rank.lanes_ms)
            if (std::ranges::find(lanes, lane) == lanes.end()) lanes.push_back(lane);
    return lanes;
}

std::string lane_text(const RankView& rank, const std::string& lane) {
    const auto found =
        std::ranges::find(rank.lanes_ms, lane, &std::pair<std::string, double>::first);
    return found == rank.lanes_ms.end() ? "-" : fmt::format("{:.1f}", found->second);
}

std::vector<std::string> rank_lines(const JobView& view, const ScreenSize& size, size_t room) {
    if (view.ranks.empty()) return {};
    const std::vector<std::string> lanes = lanes_of(view);
    // If a job has ended, the last heartbeats do not say where it ended, so they are not shown.
    const bool is_over = !view.job.lives;
    std::vector<std::vector<std::string>> rows = {{"rank", "host", "state"}};
    if (!is_over) {
        rows[0].emplace_back("steps");
        for (const std::string& lane : lanes) rows[0].push_back(printable(lane) + " ms");
        rows[0].insert(rows[0].end(), {"memory", "heard", "where"});
    }
    for (const RankView& rank : view.ranks) {
        std::vector<std::string>& row = rows.emplace_back(std::vector<std::string>{
            std::to_string(rank.rank), printable(rank.host), printable(rank.state)});
        if (is_over) continue;
        row.push_back(fmt::format("{:.1f}", rank.steps));
        for (const std::string& lane : lanes) row.push_back(lane_text(rank, lane));
        row.push_back(rank.resident_bytes ? to_text(Bytes{*rank.resident_bytes}) : "-");
        row.push_back(rank.heard_ms ? fmt::format("{:.0f} s", *rank.heard_ms / 1e3) : "-");
        row.push_back(rank.where.empty() ? "-" : printable(rank.where));
    }
    const std::string align = is_over ? "><<" : "><<" + std::string(lanes.size() + 3, '>') + "<";
    std::vector<std::string> lines = split(text_table(rows, {.align = align}), '\n');
    lines.pop_back();  // the table ends with a newline
    if (size.rows > 0 && lines.size() > room) {
        const size_t shown = std::max<size_t>(2, room) - 1;
        const size_t left = lines.size() - shown;
        lines.resize(shown);
        lines.push_back(fmt::format("and {}", counted(static_cast<int64_t>(left), "more rank")));
    }
    return lines;
}

std::vector<std::string> cut_lines(std::vector<std::string> lines, size_t columns) {
    for (std::string& line : lines) line = first_columns(line, columns);
    return lines;
}

void optional_number(JsonWriter& json, const char* key, std::optional<double> value) {
    json.key(key);
    value ? json.value(*value) : json.null();
}

void rank_json(const RankView& rank, JsonWriter& json) {
    json.begin_object().field("rank", rank.rank).field("host", rank.host);
    json.field("state", rank.state).field("steps", rank.steps).field("where", rank.where);
    optional_number(json, "heard_ms", rank.heard_ms);
    json.key("lane_ms").begin_object();
    for (const auto& [lane, time] : rank.lanes_ms) json.field(lane, time);
    json.end_object().key("resident_bytes");
    rank.resident_bytes ? json.value(*rank.resident_bytes) : json.null();
    json.end_object();
}

void view_json(const JobView& view, int64_t now, JsonWriter& json) {
    const MetricsTable& metrics = view.metrics;
    json.begin_object().field("job_id", view.job.id).field("state", view.job.state);
    json.field("target", view.job.target).field("output", view.job.output);
    json.field("age_s", running_s(view.job, now)).key("step");
    view.step() ? json.value(*view.step()) : json.null();
    json.key("steps");
    view.steps ? json.value(*view.steps) : json.null();
    optional_number(json, "left_s", view.left_s());
    for (const char* name : {"loss", "eval_loss", "lr", "tokens_per_s", "samples_per_s", "step_ms",
                             "data_wait_ms", "lane_wait_ms", "mfu", "rss_bytes", "peak_rss_bytes"})
        optional_number(json, name, metrics.last(name));
    json.key("tier_bytes").begin_object();
    for (const char* tier : {"memory", "shared", "disk", "device"})
        optional_number(json, tier, metrics.last(std::string("tier_bytes.") + tier));
    json.end_object().key("step_bytes").begin_object();
    for (const char* name :
         {"link_bytes.sent", "link_bytes.received", "disk_bytes.read", "disk_bytes.written"})
        optional_number(json, name, view.newest_growth(name));
    json.end_object().key("ranks").begin_array();
    for (const RankView& rank : view.ranks) rank_json(rank, json);
    json.end_array().end_object();
}

}  // namespace

std::string sparkline(const MetricSeries& series, size_t width) {
    constexpr std::string_view kBlocks[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
    if (series.empty() || width == 0) return "";
    const ChartScale steps{series.front().step, series.back().step + 1, false};
    const MetricSeries means = column_means(series, steps, static_cast<int>(width));
    if (means.empty()) return "";
    const auto [least, largest] = std::ranges::minmax(means, {}, &MetricPoint::value);
    const double range = largest.value - least.value;
    std::string line;
    for (const MetricPoint& mean : means) {
        const double part = range > 0 ? (mean.value - least.value) / range : 0;
        line += kBlocks[std::min<size_t>(7, static_cast<size_t>(part * 8))];
    }
    return line;
}

std::vector<std::string> job_screen(const JobView& view, int64_t now, const ScreenSize& size) {
    std::vector<std::string> lines = {head_line(view, now), step_line(view)};
    for (std::string line : {speed_line(view), loss_line(view, size.columns), memory_line(view),
                             tier_line(view), traffic_line(view)})
        if (!line.empty()) lines.push_back(std::move(line));
    lines.emplace_back();
    const size_t room = size.rows > lines.size() ? size.rows - lines.size() : 0;
    std::ranges::copy(rank_lines(view, size, room), std::back_inserter(lines));
    if (view.ranks.empty()) lines.pop_back();
    return cut_lines(std::move(lines), size.columns);
}

std::vector<std::string> jobs_screen(std::span<const JobView> views, int64_t now,
                                     const ScreenSize& size) {
    std::vector<std::vector<std::string>> rows = {
        {"job", "state", "age", "step", "loss", "left", "ranks", "target"}};
    for (const JobView& view : views) {
        const auto step = view.step();
        const auto loss = view.metrics.last("loss");
        const auto left = view.left_s();
        std::string done = step ? std::to_string(*step) : "-";
        if (step && view.steps) done += fmt::format("/{}", *view.steps);
        rows.push_back({view.job.id, state_text(view.job), age_text(running_s(view.job, now)), done,
                        loss ? fmt::format("{:.4f}", *loss) : "-", left ? clock_text(*left) : "-",
                        std::to_string(view.job.world_size), model_name(view.job)});
    }
    std::vector<std::string> lines = split(text_table(rows, {.align = "<<>>>>><"}), '\n');
    lines.pop_back();
    lines.emplace_back();
    lines.emplace_back("`dslaunch top JOB` shows one of them");
    return cut_lines(std::move(lines), size.columns);
}

std::string views_json(std::span<const JobView> views, int64_t now) {
    JsonWriter json;
    json.begin_object().key("jobs").begin_array();
    for (const JobView& view : views) view_json(view, now, json);
    json.end_array().end_object();
    return json.text();
}

}  // namespace dslaunch::launcher
