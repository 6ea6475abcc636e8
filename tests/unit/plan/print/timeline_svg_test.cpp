#include "plan/print/timeline_svg.h"

#include <fmt/core.h>

#include <fstream>
#include <regex>

#include "plan/print/pipeline_text.h"
#include "support/catch.h"
#include "support/text_tools.h"

namespace dslaunch {

using namespace plan;

namespace {

// Returns the numbers of all attributes NAME="…" of elements that match ELEMENT.
std::vector<double> numbers(const std::string& svg, const std::string& element,
                            const std::string& name) {
    std::vector<double> found;
    const std::regex whole("<" + element + "[^>]*[ ]" + name + "=\"([-0-9.]+)\"[^>]*>");
    for (std::sregex_iterator it(svg.begin(), svg.end(), whole), end; it != end; ++it)
        found.push_back(std::stod((*it)[1].str()));
    return found;
}

Timeline timeline_of(ScheduleKind kind, const PipelineShape& shape, const PartCost& cost) {
    const PipelineSchedule schedule = make_schedule(kind, shape);
    return pipeline_timeline(
        schedule, simulate_pipeline(
                      schedule, std::vector<PartCost>(static_cast<size_t>(shape.parts()), cost)));
}

// Returns true if tags are balanced and texts have no bare < or &.
bool well_formed(const std::string& svg) {
    static const std::regex token(
        R"re(<(/?)([a-z]+)((?: [-a-zA-Z0-9]+="[^"<]*")*) ?(/?)>|[^<]+)re");
    static const std::regex bare("&(?!amp;|lt;|gt;|quot;)");
    std::vector<std::string> open;
    size_t matched = 0;
    for (std::sregex_iterator it(svg.begin(), svg.end(), token), end; it != end; ++it) {
        const std::smatch& match = *it;
        matched += static_cast<size_t>(match.length());
        if (!match[2].matched) {
            if (std::regex_search(match.begin()->first, match.begin()->second, bare)) return false;
        } else if (match[1].length() > 0) {
            if (open.empty() || open.back() != match[2].str()) return false;
            open.pop_back();
        } else if (match[4].length() == 0) {
            open.push_back(match[2].str());
        }
    }
    return open.empty() && matched == svg.size();
}

}  // namespace

TEST_CASE("a timeline has a box for every work, where and as wide as it was") {
    const Timeline timeline = timeline_of(ScheduleKind::k1F1B, {4, 1, 8}, {1, 1, 1});
    const std::string svg = timeline_svg(timeline);
    CHECK(well_formed(svg));
    CHECK(test::count_of(svg, "<title>") == 4 * 8 * 2);
    CHECK(test::count_of(svg, ">forward</text>") == 1);
    CHECK(test::count_of(svg, "micro batch 3: ") == 4 * 2);
    CHECK_THAT(svg, Catch::Contains("1f1b: 4 stages, 8 micro batches, 3.3e+04 ms, 27.3 % idle"));
    CHECK(test::count_of(svg, "idle 27.3 %") == 4);
    // 33 s are as wide as a lane: a forward is a 33rd of it, a backward two 33rds.
    const std::vector<double> lanes = numbers(svg, "rect", "width");
    const double plot = *std::max_element(lanes.begin(), lanes.end());
    int forwards_count = 0;
    int backwards_count = 0;
    for (const double width : lanes) {
        if (std::abs(width - plot / 33) < 0.02) ++forwards_count;
        if (std::abs(width - 2 * plot / 33) < 0.02) ++backwards_count;
    }
    CHECK(forwards_count == 32);
    CHECK(backwards_count == 32);
}

TEST_CASE("halves of a backward and chunks are told apart") {
    const std::string svg =
        timeline_svg(timeline_of(ScheduleKind::kZeroBubbleV, {2, 2, 4}, {1, 1, 1}));
    CHECK(well_formed(svg));
    for (const char* entry :
         {">forward<", ">backward for inputs<", ">backward for weights<", ">idle<", ">chunk 1<"})
        CHECK(test::count_of(svg, entry) == 1);
    CHECK(test::count_of(svg, "<title>backward_weight, chunk 1") == 2 * 4);
}

TEST_CASE("a box without room for its number has none, and a wide picture gets room") {
    // With the least width, each box of 200 micro batches would be 1 pixel wide.
    const std::string many = timeline_svg(timeline_of(ScheduleKind::k1F1B, {2, 1, 200}, {1, 1, 1}));
    CHECK(numbers(many, "svg", "width").at(0) > 5000);
    Timeline tiny;
    tiny.kinds = {"forward"};
    tiny.lanes.push_back({"stage 0", "", {}});
    tiny.lanes[0].spans.push_back({0, 1, 0, 0, "wide", ""});
    for (int i = 0; i < 99; ++i)
        tiny.lanes[0].spans.push_back({1000.0 + i, 1001.0 + i, 0, 0, "", ""});
    CHECK(test::count_of(timeline_svg(tiny), ">wide<") == 0);
}

TEST_CASE("names that are markup, control characters or no UTF-8 stay text") {
    Timeline timeline;
    timeline.title = "</text><script>alert(1)</script> & \"x\"";
    timeline.kinds = {"a<b"};
    timeline.lanes.push_back({"r&d\x1b[31m", "\xff", {{0, 1, 0, 0, "<1>", "a\" onload=\"b"}}});
    const std::string svg = timeline_svg(timeline);
    CHECK(well_formed(svg));
    CHECK(test::count_of(svg, "<script") == 0);
    CHECK(test::count_of(svg, "onload=\"") == 0);
    CHECK(test::count_of(svg, "\x1b") == 0);
    CHECK_THAT(svg, Catch::Contains("r&amp;d\\x1b[31m"));
}

TEST_CASE("nothing at all, and more lanes than a picture holds, are drawn too") {
    CHECK(well_formed(timeline_svg({})));
    const std::string svg = timeline_svg(timeline_of(ScheduleKind::kGPipe, {70, 1, 2}, {1, 1, 1}));
    CHECK(well_formed(svg));
    CHECK_THAT(svg, Catch::Contains("and 6 more"));
    CHECK(test::count_of(svg, ">stage ") == kTimelineLanesMax);
}

}  // namespace dslaunch
