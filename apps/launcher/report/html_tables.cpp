// Tables of the page: summary, config, hosts.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <set>

#include "base/bytes.h"
#include "base/text.h"
#include "launcher/report/chart.h"
#include "launcher/report/html_parts.h"

namespace dslaunch::launcher {
namespace {

// Returns the number of steps of a run as a text. Like the functions below, returns "" if the
// number is not known.
std::string steps_fact(const RunFolder& run) {
    const MetricSeries* const loss = run.metrics.find("loss");
    std::string text = loss == nullptr ? "" : number_text(loss->back().step);
    if (run.metrics.skipped_steps > 0)
        text += fmt::format(", {} of them without an update", run.metrics.skipped_steps);
    if (run.metrics.repeated_steps > 0)
        text += fmt::format(", {} repeated after a restart", run.metrics.repeated_steps);
    return text;
}

std::string loss_fact(const RunFolder& run) {
    const MetricSeries* const loss = run.metrics.find("loss");
    if (loss == nullptr) return "";
    std::string text = number_text(loss->back().value);
    const auto is_bad = [](const MetricPoint& point) { return !std::isfinite(point.value); };
    if (const auto bad = std::ranges::find_if(*loss, is_bad); bad != loss->end())
        return text + fmt::format(" (not a number in {}, first at {})",
                                  counted(std::ranges::count_if(*loss, is_bad), "step"),
                                  number_text(bad->step));
    if (const auto least = run.metrics.least("loss"))
        text += fmt::format(" (least {} at step {})", number_text(least->value),
                            number_text(least->step));
    return text;
}

std::string held_out_fact(const RunFolder& run) {
    const MetricSeries* const losses = run.metrics.find("eval_loss");
    const auto least = run.metrics.least("eval_loss");
    if (losses == nullptr || !least) return "";
    return fmt::format("{} (least {} at step {})", number_text(losses->back().value),
                       number_text(least->value), number_text(least->step));
}

std::string median_fact(const RunFolder& run, std::string_view name, double factor = 1) {
    const auto median = run.metrics.median(name);
    return median ? number_text(*median * factor) : "";
}

std::string peak_fact(const RunFolder& run, std::string_view name) {
    const auto peak = run.metrics.largest(name);
    return peak ? to_text(Bytes{static_cast<int64_t>(peak->value)}) : "";
}

std::string said_fact(const RunFolder& run, std::string_view name) {
    const auto found = std::ranges::find(run.said, name, &RunFact::first);
    return found == run.said.end() ? "" : found->second;
}

std::string ranks_fact(const RunFolder& run) {
    if (run.world_size == 0) return "";
    return fmt::format("{} on {}", counted(run.world_size, "rank"),
                       counted(std::max<int64_t>(1, std::ssize(run.hosts.rows)), "host"));
}

// Returns a table with a row for each of FACTS and a column for each of RUNS. Leaves out a row if
// no run has the fact.
ReportTable fact_rows(
    std::span<const RunFolder> runs,
    std::initializer_list<std::pair<const char*, std::function<std::string(const RunFolder&)>>>
        facts) {
    ReportTable table;
    table.head = {""};
    for (const RunFolder& run : runs) table.head.push_back(run.name);
    for (const auto& [name, fact] : facts) {
        std::vector<std::string> row = {name};
        for (const RunFolder& run : runs) row.push_back(fact(run));
        const auto is_empty = [](const std::string& cell) { return cell.empty(); };
        if (!std::all_of(row.begin() + 1, row.end(), is_empty)) table.rows.push_back(row);
    }
    return table;
}

std::string config_value(const RunFolder& run, const std::string& path) {
    const auto found = std::ranges::find(run.config, path, &RunConfigValue::path);
    return found == run.config.end() ? "" : found->value;
}

std::string config_html(const RunFolder& run) {
    ReportTable set{{"key", "value", "origin"}, {}}, defaults{{"key", "value"}, {}};
    for (const RunConfigValue& value : run.config) {
        if (value.origin == "default") {
            defaults.rows.push_back({value.path, value.value});
        } else {
            set.rows.push_back({value.path, value.value, value.origin});
        }
    }
    if (run.config.empty()) return "";
    return table_html(set) +
           fold_html(counted(std::ssize(defaults.rows), "key") + " with the default",
                     defaults.rows.empty() ? "" : table_html(defaults));
}

// Returns the HTML of PART for each run. If there are several runs, each part is under the name of
// its run.
template <typename Part>
std::string for_each_run(std::span<const RunFolder> runs, Part part) {
    std::string html;
    for (const RunFolder& run : runs) {
        const std::string content = part(run);
        html += runs.size() > 1 ? fold_html(escaped_markup(run.name), content) : content;
    }
    return html;
}

}  // namespace

std::string table_html(const ReportTable& table) {
    // A column without any text, such as GPUs on hosts that have none, is left out.
    const auto has_text = [&](size_t column) {
        return column == 0 || std::ranges::any_of(table.rows, [&](const auto& row) {
                   return column < row.size() && !row[column].empty();
               });
    };
    std::string html = "<div class=\"scroll\"><table><thead><tr>";
    for (size_t i = 0; i < table.head.size(); ++i)
        if (has_text(i))
            html += fmt::format("<th scope=\"col\">{}</th>", escaped_markup(table.head[i]));
    html += "</tr></thead><tbody>\n";
    for (const std::vector<std::string>& row : table.rows) {
        html += fmt::format("<tr><th scope=\"row\">{}</th>", escaped_markup(row.front()));
        for (size_t i = 1; i < row.size(); ++i)
            if (has_text(i)) html += fmt::format("<td>{}</td>", escaped_markup(row[i]));
        html += "</tr>\n";
    }
    return html + "</tbody></table></div>\n";
}

std::string section_html(std::string_view title, const std::string& content) {
    return content.empty() ? ""
                           : fmt::format("<section><h2>{}</h2>\n{}</section>\n", title, content);
}

std::string fold_html(const std::string& summary, const std::string& content) {
    return content.empty()
               ? ""
               : fmt::format("<details><summary>{}</summary>\n{}</details>\n", summary, content);
}

std::string summary_html(std::span<const RunFolder> runs) {
    return table_html(fact_rows(
               runs,
               {{"end", [](const RunFolder& run) { return run.end; }},
                {"model",
                 [](const RunFolder& run) {
                     return std::filesystem::path(run.target).filename().string();
                 }},
                {"parameters",
                 [](const RunFolder& run) {
                     return run.parameters ? number_text(static_cast<double>(*run.parameters)) : "";
                 }},
                {"data", [](const RunFolder& run) { return said_fact(run, "data"); }},
                {"ranks", ranks_fact},
                {"training", [](const RunFolder& run) { return said_fact(run, "run"); }},
                {"started", [](const RunFolder& run) { return run.started; }},
                {"took", [](const RunFolder& run) { return run.took; }},
                {"steps", steps_fact},
                {"final loss", loss_fact},
                {"held-out loss", held_out_fact},
                {"tokens a second",
                 [](const RunFolder& run) { return median_fact(run, "tokens_per_s"); }},
                {"samples a second",
                 [](const RunFolder& run) { return median_fact(run, "samples_per_s"); }},
                {"ms a step", [](const RunFolder& run) { return median_fact(run, "step_ms"); }},
                {"TFLOP/s of a rank",
                 [](const RunFolder& run) { return median_fact(run, "tflops"); }},
                {"MFU",
                 [](const RunFolder& run) {
                     const std::string percent = median_fact(run, "mfu", 100);
                     return percent.empty() ? "" : percent + " %";
                 }},
                {"peak memory of a rank",
                 [](const RunFolder& run) { return peak_fact(run, "peak_rss_bytes"); }},
                {"folder", [](const RunFolder& run) { return run.path; }}})) +
           "<p class=\"soft\">Speeds are medians over all steps except the first.</p>\n";
}

std::string problems_html(std::span<const RunFolder> runs) {
    std::string items, warnings;
    for (const RunFolder& run : runs) {
        const std::string name = runs.size() > 1 ? run.name + ": " : "";
        for (const std::string& problem : run.problems)
            items += fmt::format("<li>{}</li>\n", escaped_markup(name + problem));
        for (const std::string& warning : run.warnings)
            warnings += fmt::format("<li>{}</li>\n", escaped_markup(name + warning));
    }
    std::string html;
    if (!items.empty())
        html += fmt::format("<div class=\"problems\"><b>Missing or damaged</b><ul>{}</ul></div>\n",
                            items);
    if (!warnings.empty())
        html += fmt::format("<div class=\"problems\"><b>Warnings of the run</b><ul>{}</ul></div>\n",
                            warnings);
    return html;
}

std::string differences_html(std::span<const RunFolder> runs) {
    if (runs.size() < 2) return "";
    std::set<std::string> paths;
    for (const RunFolder& run : runs)
        for (const RunConfigValue& value : run.config) paths.insert(value.path);
    ReportTable table;
    table.head = {"key"};
    for (const RunFolder& run : runs) table.head.push_back(run.name);
    for (const std::string& path : paths) {
        std::vector<std::string> row = {path};
        for (const RunFolder& run : runs) row.push_back(config_value(run, path));
        if (std::adjacent_find(row.begin() + 1, row.end(), std::not_equal_to<>()) != row.end())
            table.rows.push_back(row);
    }
    return table.rows.empty() ? "<p>Nothing: all keys have the same values.</p>\n"
                              : table_html(table);
}

std::string configs_html(std::span<const RunFolder> runs) {
    return for_each_run(runs, config_html);
}

std::string places_html(std::span<const RunFolder> runs) {
    return for_each_run(runs, [](const RunFolder& run) {
        std::string html = run.hosts.rows.empty() ? "" : table_html(run.hosts);
        if (!run.ranks.rows.empty())
            html += fold_html(counted(std::ssize(run.ranks.rows), "rank"), table_html(run.ranks));
        if (!run.checkpoints.rows.empty())
            html += fold_html(counted(std::ssize(run.checkpoints.rows), "checkpoint"),
                              table_html(run.checkpoints));
        std::string log;
        for (const std::string& line : split(run.last_lines, '\n'))
            log += escaped_markup(line) + "\n";
        if (!run.last_lines.empty())
            html += fold_html("last lines of rank 0", "<pre>" + log + "</pre>\n");
        return html;
    });
}

}  // namespace dslaunch::launcher
