#include "launcher/report/html_page.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"
#include "launcher/report/chart.h"
#include "launcher/report/html_parts.h"

namespace dslaunch::launcher {
namespace {

constexpr std::string_view kPageCss = R"(
*{box-sizing:border-box}
body{margin:0 auto;padding:20px;max-width:1440px;background:var(--paper);color:var(--ink);
font:15px/1.5 system-ui,sans-serif}
h1{font-size:22px;margin:0 0 4px;overflow-wrap:anywhere}
h2{font-size:17px;margin:32px 0 10px}
.soft,footer{color:var(--soft)}
footer{margin-top:40px;font-size:13px}
.scroll{overflow-x:auto}
table{border-collapse:collapse;font-size:14px}
th,td{text-align:left;vertical-align:top;padding:5px 16px 5px 0;border-bottom:1px solid var(--line);
min-width:130px;max-width:420px;overflow-wrap:anywhere;font-variant-numeric:tabular-nums}
th{color:var(--soft);font-weight:500}
tbody th{min-width:96px;max-width:220px;position:sticky;left:0;background:var(--paper)}
.grid-of-charts{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(340px,100%),1fr));
gap:22px}
figure{margin:0;min-width:0}
figure.wide{margin:16px 0 26px}
figcaption{font-weight:600}
figcaption span{font-weight:400;color:var(--soft)}
svg.chart{display:block;width:100%;height:auto}
.legend{list-style:none;display:flex;flex-wrap:wrap;gap:2px 16px;margin:2px 0 4px;padding:0;
font-size:13px}
.legend li{display:flex;align-items:center;gap:6px;overflow-wrap:anywhere}
.legend svg.chart{width:26px;flex:none}
.only-narrow{display:none}
@media(max-width:800px){body{padding:14px}.only-wide{display:none}.only-narrow{display:block}}
details{margin:8px 0}
summary{cursor:pointer;padding:4px 0}
pre{overflow-x:auto;font-size:12px;border:1px solid var(--line);padding:10px;border-radius:6px}
.problems{border-left:4px solid var(--c1);padding:2px 14px;margin:14px 0}
.problems li{overflow-wrap:anywhere}
.f0{fill:var(--c0)}.f1{fill:var(--c1)}.f2{fill:var(--c2)}.f3{fill:var(--c3)}
.f4{fill:var(--c4)}.f5{fill:var(--c5)}.f6{fill:var(--c6)}.f7{fill:var(--c7)}
.chart .soft{opacity:.45}
@media print{body{max-width:none}}
)";

std::string title_of(std::span<const RunFolder> runs) {
    if (runs.size() > 1) return counted(std::ssize(runs), "run");
    return runs.front().name;
}

std::string subtitle_of(std::span<const RunFolder> runs) {
    std::vector<std::string> names;
    for (const RunFolder& run : runs) names.push_back(run.name);
    return runs.size() > 1 ? join(names, ", ") : runs.front().end;
}

}  // namespace

std::string html_page(std::span<const RunFolder> runs, const std::string& made) {
    std::string page = fmt::format(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src "
        "'unsafe-inline'\">\n"
        "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n"
        "<title>{0} - dslaunch</title>\n<style>{1}{2}</style></head>\n<body>\n"
        "<h1>{0}</h1><div class=\"soft\">{3}</div>\n",
        escaped_markup(title_of(runs)), chart_css(), kPageCss, escaped_markup(subtitle_of(runs)));
    page += problems_html(runs);
    page += section_html("Summary", summary_html(runs));
    page += section_html("What differs in the configs", differences_html(runs));
    page += section_html("Curves", charts_html(runs));
    page += section_html("Predicted and measured", forecast_html(runs));
    page += section_html("Hosts, checkpoints and the log", places_html(runs));
    page += section_html("Config", configs_html(runs));
    return page + fmt::format("<footer>{}</footer>\n</body></html>\n", escaped_markup(made));
}

void name_apart(std::span<RunFolder> runs) {
    const auto has_twin = [&](const RunFolder& run) {
        return std::ranges::count(runs, run.name, &RunFolder::name) > 1;
    };
    std::vector<RunFolder*> twins;
    for (RunFolder& run : runs)
        if (has_twin(run)) twins.push_back(&run);
    for (RunFolder* run : twins) run->name = run->path;
    for (size_t i = 0; i < runs.size(); ++i)
        if (has_twin(runs[i])) runs[i].name = fmt::format("{} ({})", runs[i].path, i + 1);
}

}  // namespace dslaunch::launcher
