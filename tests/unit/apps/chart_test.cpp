// The drawing of `dslaunch report --html` and loss.svg, with values in closed form.
#include "launcher/report/chart.h"

#include <sys/stat.h>

#include <cmath>
#include <filesystem>
#include <limits>
#include <sstream>

#include "launcher/report/loss_picture.h"
#include "support/catch.h"
#include "support/temporary_folder.h"
#include "support/text_tools.h"

using namespace dslaunch;
using namespace dslaunch::launcher;
using namespace dslaunch::test;

namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

std::vector<std::string> texts_of(const ChartScale& scale, int most) {
    std::vector<std::string> texts;
    for (const ChartTick& tick : ticks_of(scale, most)) texts.push_back(tick.text);
    return texts;
}

using Texts = std::vector<std::string>;

MetricSeries series_of(int64_t count, double (*value)(int64_t)) {
    MetricSeries series;
    for (int64_t i = 1; i <= count; ++i) series.push_back({static_cast<double>(i), value(i)});
    return series;
}

}  // namespace

TEST_CASE("marks of an axis are round numbers, few enough, and within it") {
    const std::vector<std::tuple<ChartScale, int, Texts>> rows = {
        {{0, 10, false}, 6, {"0", "2", "4", "6", "8", "10"}},
        {{0, 10, false}, 11, {"0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "10"}},
        {{1, 100'000, false}, 4, {"50,000", "100,000"}},
        {{2.21, 2.58, false}, 5, {"2.3", "2.4", "2.5"}},
        {{-0.3, 0.3, false}, 4, {"-0.2", "0.0", "0.2"}},
        {{0, 3.2e-5, false}, 4, {"0", "1e-05", "2e-05", "3e-05"}},
        {{0, 4e9, false}, 5, {"0", "1e+09", "2e+09", "3e+09", "4e+09"}},
        {{1'234'560, 1'234'564, false}, 3, {"1,234,560", "1,234,562", "1,234,564"}},
        {{1, 1000, true}, 5, {"1", "10", "100", "1,000"}},
        {{1, 100, true}, 9, {"1", "2", "5", "10", "20", "50", "100"}},
    };
    for (const auto& [scale, most, texts] : rows) {
        INFO(scale.from << " to " << scale.to);
        CHECK(texts_of(scale, most) == texts);
    }
    // In every range there is at least one mark, there are at most as many as requested, and all
    // are inside.
    for (int exponent = -8; exponent <= 12; ++exponent) {
        for (const double width : {1.0, 1.7, 3.0, 7.1, 9.9}) {
            const double from = 0.37 * std::pow(10, exponent);
            const ChartScale scale{from, from + width * std::pow(10, exponent), false};
            const auto ticks = ticks_of(scale, 5);
            CHECK(!ticks.empty());
            CHECK(ticks.size() <= 5);
            for (const ChartTick& tick : ticks)
                CHECK((tick.value >= scale.from * 0.999999 && tick.value <= scale.to * 1.000001));
        }
    }
}

TEST_CASE("a scale has room for all values, and is logarithmic only where they are wide apart") {
    const ChartScale linear = fitted_scale(2, 12, ScaleWish::kFitted);
    CHECK(linear.from == 1.5);  // a margin of 5 % of 10
    CHECK(linear.to == 12.5);
    CHECK(linear.part(7) == 0.5);
    CHECK(fitted_scale(2, 12, ScaleWish::kFromZero).from == 0);
    CHECK(fitted_scale(-2, 12, ScaleWish::kFromZero).from < -2);
    CHECK_FALSE(fitted_scale(1, 10, ScaleWish::kLogIfWide).is_log);
    const ChartScale log = fitted_scale(1, 100, ScaleWish::kLogIfWide);
    CHECK(log.is_log);
    CHECK(std::abs(log.part(10) - 0.5) < 1e-12);
    CHECK_FALSE(fitted_scale(0, 100, ScaleWish::kLogIfWide).is_log);
    for (const double same : {0.0, 3.0, -3.0, 1e-12, 1e15}) {
        const ChartScale scale = fitted_scale(same, same, ScaleWish::kFitted);
        CHECK(std::abs(scale.part(same) - 0.5) < 1e-9);
    }
}

TEST_CASE("100,000 points become a few for each column, and no spike is lost") {
    MetricSeries series = series_of(100'000, [](int64_t i) { return 2.0 + 1e-6 * double(i % 7); });
    series[12'344].value = 99;  // step 12,345
    series[77'776].value = -5;
    const ChartScale steps{1, 100'000, false};
    const MetricSeries few = thinned(series, steps, 500);
    CHECK(few.size() <= 4 * 500);
    CHECK(few.size() >= 500);
    const auto has = [&](double step, double value) {
        return std::ranges::any_of(few, [&](const MetricPoint& point) {
            return point.step == step && point.value == value;
        });
    };
    CHECK(has(12'345, 99));
    CHECK(has(77'777, -5));
    CHECK(few.front().step == 1);
    CHECK(few.back().step == 100'000);
    CHECK(std::ranges::is_sorted(few, {}, &MetricPoint::step));
    // The means of 1 … 10 in two halves are 3 and 8, at steps 3 and 8.
    const MetricSeries line = series_of(10, [](int64_t i) { return double(i); });
    const MetricSeries means = column_means(line, {1, 11, false}, 2);
    REQUIRE(means.size() == 2);
    CHECK(means[0].value == 3);
    CHECK(means[1].value == 8);
    CHECK(means[1].step == 8);
    // A short curve is kept as a whole, with its gaps.
    series[5].value = kNan;
    CHECK(thinned({series.data(), 100}, {1, 100, false}, 100).size() == 100);
    CHECK(std::ranges::any_of(thinned(series, steps, 500),
                              [](const MetricPoint& point) { return std::isnan(point.value); }));
}

TEST_CASE("a curve's path goes through the places that its scale gives") {
    // The widest mark is "1.0" (3 digits of 6.8 px), so the plot begins at 10 + 20.4 and ends at
    // 400 - 14; its height goes from 200 - 38 up to 8. The scale from 0 to 1 x 1.05 puts 1 at
    // 162 - 154 / 1.05 = 15.3.
    const Chart chart{
        "t", "", ScaleWish::kFromZero, {{"a", {2, 1}, {{0, 0}, {1, 1}, {2, 0}}, false}}};
    const std::string svg = chart_svg(chart, {400, 200});
    CHECK(mentions(svg, "class=\"curve c2 d1\" d=\"M30.4 162.0L208.2 15.3L386.0 162.0\""));
    CHECK(mentions(svg, "aria-label=\"t; a: 0 at step 0, 0 at step 2, least 0 at step 0\""));
    // A value that is not a number interrupts the path and is marked on the axis.
    Chart broken = chart;
    broken.curves[0].points[1].value = kNan;
    const std::string gap = chart_svg(broken, {400, 200});
    CHECK(mentions(gap, "h0M386.0"));
    CHECK(mentions(gap, "class=\"gap\" d=\"M"));
    broken.curves[0].points = {{0, kNan}};
    CHECK_FALSE(has_values(broken));
    broken.curves[0].points = {{7, 1e300}, {8, 2}};
    CHECK_FALSE(mentions(chart_svg(broken, {400, 200}), "inf"));
    CHECK_FALSE(mentions(chart_svg(broken, {400, 200}), "nan"));
}

TEST_CASE("no text gets out of its element or attribute") {
    CHECK(escaped_markup("a<b>&\"c'") == "a&lt;b&gt;&amp;&quot;c&#39;");
    CHECK(escaped_markup("\x1b[2J\x01") == "\\x1b[2J\\x01");
    const std::string evil = "</title></svg><script>alert(1)</script>\"><img src=x onerror=y>";
    const Chart chart{evil,
                      evil,
                      ScaleWish::kFitted,
                      {{evil, {0, 0}, {{1, 1}, {2, 2}}, true}, {"b", {1, 0}, {{1, 2}}, false}}};
    for (const std::string& text :
         {chart_svg(chart, {400, 200}), chart_document(chart, {400, 200}), chart_legend(chart)}) {
        CHECK_FALSE(mentions(text, "<script"));
        CHECK_FALSE(mentions(text, "<img"));
        CHECK_FALSE(mentions(text, "\"><img"));
    }
}

TEST_CASE("metrics are read line by line: damage is counted, and a restart's steps count once") {
    std::istringstream text(
        "{\"step\": 0, \"eval_loss\": 5}\n"
        "{\"step\": 1, \"loss\": 4, \"memory\": {\"gradients\": 8, \"deep\": {\"x\": 1}}}\n"
        "{\"step\": 2, \"loss\": 3}\n{\"step\": 2, \"eval_loss\": 3.5}\n"
        "{\"step\": 3, \"loss\": null, \"skipped\": true}\n"
        "{\"step\": 4, \"loss\": 9\n"  // incomplete
        "\n[1, 2]\nnot json\n{\"loss\": 1}\n"
        "{\"step\": 2, \"loss\": 2.5}\n"  // restarted from step 1
        "{\"step\": 3, \"loss\": 2, \"list\": [1, {\"step\": 9}]}");
    const MetricsTable table = read_metrics_table(text);
    const MetricSeries* const loss = table.find("loss");
    REQUIRE(loss != nullptr);
    REQUIRE(loss->size() == 3);
    CHECK((*loss)[1].value == 2.5);
    CHECK((*loss)[2].value == 2);
    CHECK(table.damaged_lines == 4);
    CHECK(table.repeated_steps == 2);
    CHECK(table.skipped_steps == 1);
    CHECK(table.find("eval_loss")->size() == 1);  // the value of step 2 was repeated too
    CHECK(table.last("memory.gradients") == 8);
    CHECK(table.find("memory.deep") == nullptr);
    CHECK(table.find("list") == nullptr);
    CHECK(table.least("loss")->value == 2);
    CHECK(table.median("loss") == 2.5);  // the median of 2.5 and 2, without the first step
}

TEST_CASE("loss.svg is written beside the metrics, and never fails a run") {
    TemporaryFolder folder;
    write_loss_picture(folder.path());  // no metrics
    CHECK(folder.read("loss.svg").empty());
    write_file(folder.path() + "/metrics.jsonl",
               "{\"step\": 1, \"loss\": 4}\n{\"step\": 2, \"loss\": 3}\n"
               "{\"step\": 2, \"eval_loss\": 3.25}\n");
    write_loss_picture(folder.path());
    const std::string svg = folder.read("loss.svg");
    CHECK(svg.starts_with("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<svg xmlns="));
    CHECK(mentions(svg, "prefers-color-scheme:dark"));
    CHECK(mentions(svg, "held-out loss, step 2: 3.25"));
    CHECK_FALSE(mentions(svg, "http://www.w3.org/2000/svg\" http"));
    // A file with this name that dslaunch has not written stays.
    write_file(folder.path() + "/loss.svg", "mine");
    write_loss_picture(folder.path());
    CHECK(folder.read("loss.svg") == "mine");
    // Opening a FIFO would wait for a writer.
    std::filesystem::remove(folder.path() + "/loss.svg");
    REQUIRE(::mkfifo((folder.path() + "/loss.svg").c_str(), 0600) == 0);
    write_loss_picture(folder.path());
    CHECK(std::filesystem::is_fifo(folder.path() + "/loss.svg"));
}
