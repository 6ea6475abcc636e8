#include "text/tokenizer/step_fields.h"

#include <fmt/core.h>

#include <algorithm>
#include <iterator>

#include "base/error.h"
#include "base/text.h"
#include "text/unicode/code_points.h"

namespace dslaunch::text {
namespace {

constexpr std::string_view kStrayFields[] = {"add_prefix_space", "trim_offsets", "use_regex"};
constexpr int kStepDepthMax = 16;
constexpr size_t kStepsMax = 64;

using UseStep = std::function<void(const JsonPlace&, const std::string&)>;

void walk_steps(const JsonPlace& place, const char* list, const UseStep& use, int depth,
                size_t& count) {
    if (depth > kStepDepthMax || count > kStepsMax) place.refuse("there are too many steps");
    const std::string& type = place.at("type").text();
    if (type != "Sequence") {
        ++count;
        return use(place, type);
    }
    expect_step_fields(place, {"type", list});
    place.at(list).for_elements(
        [&](const JsonPlace& step) { walk_steps(step, list, use, depth + 1, count); });
}

}  // namespace

void expect_step_fields(const JsonPlace& place, std::initializer_list<std::string_view> known) {
    place.for_members([&](const std::string& name, const JsonPlace&) {
        if (std::ranges::find(known, name) == known.end() &&
            std::ranges::find(kStrayFields, name) == std::end(kStrayFields))
            place.refuse(
                fmt::format("the field `{}` is not known to this version", printable(name)));
    });
}

void for_steps(const JsonPlace& place, const char* list, const UseStep& use) {
    size_t count = 0;
    walk_steps(place, list, use, 0, count);
}

std::unique_ptr<const Pattern> read_pattern(const JsonPlace& place) {
    const auto [kind, value] = place.only();
    const std::string& text = value.text();
    if (text.empty()) value.refuse("an empty pattern is not supported");
    if (kind == "String") return literal_pattern(text);
    if (kind != "Regex")
        place.refuse(fmt::format("expected a String or a Regex, found `{}`", printable(kind)));
    try {
        return compile_pattern(text);
    } catch (const Error& error) {
        value.refuse(error.what());
    }
}

const std::string& read_character(const JsonPlace& place) {
    const std::string& text = place.text();
    if (text.empty() || point_bytes(text[0]) != text.size()) place.refuse("expected one character");
    return text;
}

}  // namespace dslaunch::text
