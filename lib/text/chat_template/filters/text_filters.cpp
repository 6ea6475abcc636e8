#include "text/chat_template/filters/filters.h"
#include "text/chat_template/objects/methods.h"
#include "text/chat_template/values/arithmetic.h"
#include "text/chat_template/values/compare.h"
#include "text/chat_template/values/json_text.h"
#include "text/chat_template/values/letters.h"
#include "text/chat_template/values/percent_format.h"
#include "text/chat_template/values/points.h"
#include "text/chat_template/values/printing.h"

#include <fmt/format.h>

#include <algorithm>

namespace dslaunch::text::jinja {
namespace {

using Bound = std::vector<const Value*>;

// Markup stays what it is, and all else becomes a text.
Value soft_text(Runtime& runtime, const Value& value) {
    if (value.is(Kind::kText)) return value;
    return new_text(&runtime.meter(), str_of(runtime.meter(), value));
}

Value made(Runtime& runtime, std::string text, bool is_safe = false) {
    return new_text(&runtime.meter(), std::move(text), is_safe);
}

bool is_on(const Value* flag) {
    return flag != nullptr && is_true(*flag);
}

template <std::string (*kChange)(std::string_view)>
Value cased(Runtime& runtime, const Value& input, const Arguments& arguments) {
    static_cast<void>(bind("the filter", arguments, {}, 0));
    const Value text = soft_text(runtime, input);
    runtime.meter().step_text(text.text().size() * 16);
    return made(runtime, kChange(text.text()), text.text_object().is_safe);
}

bool begins_word(uint32_t point) {
    return is_space_point(point) || point == '-' || point == '(' || point == '{' || point == '[' ||
           point == '<';
}

// Each word's first letter as a capital; words begin behind blanks, `-` and opening brackets.
std::string title_words(std::string_view text) {
    std::string result;
    for (size_t i = 0; i < text.size();) {
        const bool is_gap = begins_word(point_at(text, i));
        size_t end = i;
        while (end < text.size() && begins_word(point_at(text, end)) == is_gap)
            end += point_bytes(text[end]);
        const std::string_view part = text.substr(i, end - i);
        const size_t first = point_bytes(part[0]);
        result += upper_text(part.substr(0, first)) + lower_text(part.substr(first));
        i = end;
    }
    return result;
}

Value trim_filter(Runtime& runtime, const Value& input, const Arguments& arguments) {
    const Bound bound = bind("trim", arguments, {"chars"}, 0);
    const Value text = soft_text(runtime, input);
    runtime.meter().step_text(text.text().size());
    const bool has_chars = bound[0] != nullptr && !bound[0]->is(Kind::kNone);
    const std::string_view trimmed =
        has_chars ? strip_points(text.text(), required_text("trim", *bound[0]), {})
                  : strip_blanks(text.text());
    if (trimmed.size() == text.text().size()) return text;
    return made(runtime, std::string(trimmed), text.text_object().is_safe);
}

Value replace_filter(Runtime& runtime, const Value& input, const Arguments& arguments) {
    const Bound bound = bind("replace", arguments, {"old", "new", "count"}, 2);
    const bool has_count = bound[2] != nullptr && !bound[2]->is(Kind::kNone);
    Meter& meter = runtime.meter();
    return made(runtime, replaced(meter, str_of(meter, input), str_of(meter, *bound[0]),
                                  str_of(meter, *bound[1]),
                                  has_count ? whole_number("replace", bound[2]) : -1));
}

Value indent_filter(Runtime& runtime, const Value& input, const Arguments& arguments) {
    const Bound bound = bind("indent", arguments, {"width", "first", "blank"}, 0);
    Meter& meter = runtime.meter();
    const std::string& text = required_text("indent", input);
    std::string indention;
    if (bound[0] != nullptr && bound[0]->is(Kind::kText)) {
        indention = bound[0]->text();
    } else {
        const int64_t width = std::max<int64_t>(0, whole_number("indent", bound[0], 4));
        meter.check_bytes(size_t(width));
        indention.assign(size_t(width), ' ');
    }
    const bool with_blank = is_on(bound[2]);
    std::string result = is_on(bound[1]) ? indention : "";
    bool is_first = true;
    for (const Value& line : split_lines(meter, text + "\n", false)) {
        if (!is_first) result += "\n";
        if (!is_first && (with_blank || !line.text().empty())) result += indention;
        result += line.text();
        is_first = false;
        meter.step_text(indention.size());
        meter.check_bytes(result.size());
    }
    return made(runtime, std::move(result), input.text_object().is_safe);
}

Value truncate_filter(Runtime& runtime, const Value& input, const Arguments& arguments) {
    const Bound bound = bind("truncate", arguments, {"length", "killwords", "end", "leeway"}, 0);
    const std::string end = bound[2] == nullptr ? "..." : required_text("truncate", *bound[2]);
    const int64_t length = whole_number("truncate", bound[0], 255);
    const bool has_leeway = bound[3] != nullptr && !bound[3]->is(Kind::kNone);
    const int64_t leeway = has_leeway ? whole_number("truncate", bound[3]) : 5;
    const int64_t kept = length - count_points(end);
    if (kept < 0 || leeway < 0) throw Fault("truncate has a length below that of its end");
    const auto given = length_of(input);
    if (given && *given - leeway <= length) return input;
    const std::string& text = required_text("truncate", input);
    std::string result = text.substr(0, point_offset(text, kept));
    if (!is_on(bound[1])) result = result.substr(0, result.rfind(' '));
    return made(runtime, result + end);
}

Value word_count_filter(Runtime& runtime, const Value& input, const Arguments& arguments) {
    static_cast<void>(bind("wordcount", arguments, {}, 0));
    const Value text = soft_text(runtime, input);
    const std::string& all = text.text();
    runtime.meter().step_text(all.size() * 16);
    int64_t count = 0;
    bool in_word = false;
    for (size_t i = 0; i < all.size(); i += point_bytes(all[i])) {
        const uint32_t point = point_at(all, i);
        const bool is_word = point == '_' || is_alpha_point(point) || is_numeric_point(point);
        count += is_word && !in_word ? 1 : 0;
        in_word = is_word;
    }
    return Value::integer(count);
}

Value center_filter(Runtime& runtime, const Value& input, const Arguments& arguments) {
    const Bound bound = bind("center", arguments, {"width"}, 0);
    const Value text = soft_text(runtime, input);
    return made(runtime, centered(runtime.meter(), text.text_object(),
                                  whole_number("center", bound[0], 80), " "));
}

Value format_filter(Runtime& runtime, const Value& input, const Arguments& arguments) {
    Meter& meter = runtime.meter();
    const Value text = soft_text(runtime, input);
    if (!arguments.positional.empty() && !arguments.named.empty())
        throw Fault("format takes values by place or by name, not both");
    if (arguments.named.empty())
        return made(runtime,
                    percent_format(meter, text.text(), new_tuple(&meter, arguments.positional)));
    std::vector<Entry> entries;
    for (const auto& [name, value] : arguments.named)
        entries.emplace_back(new_text(&meter, name), value);
    return made(runtime, percent_format(meter, text.text(), new_dict(&meter, std::move(entries))));
}

Value string_filter(Runtime& runtime, const Value& input, const Arguments& arguments) {
    static_cast<void>(bind("string", arguments, {}, 0));
    return soft_text(runtime, input);
}

Value safe_filter(Runtime& runtime, const Value& input, const Arguments& arguments) {
    static_cast<void>(bind("safe", arguments, {}, 0));
    return made(runtime, str_of(runtime.meter(), input), true);
}

Value escape_filter(Runtime& runtime, const Value& input, const Arguments& arguments) {
    static_cast<void>(bind("escape", arguments, {}, 0));
    if (input.is(Kind::kText) && input.text_object().is_safe) return input;
    return made(runtime, html_escaped(str_of(runtime.meter(), input)), true);
}

Value force_escape_filter(Runtime& runtime, const Value& input, const Arguments& arguments) {
    static_cast<void>(bind("forceescape", arguments, {}, 0));
    return made(runtime, html_escaped(str_of(runtime.meter(), input)), true);
}

std::string url_quoted(std::string_view text, bool for_query) {
    constexpr std::string_view kSafe = "_.-~";
    std::string result;
    for (const char c : text) {
        const bool is_plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                              (c >= '0' && c <= '9') || kSafe.find(c) != kSafe.npos ||
                              (c == '/' && !for_query);
        if (is_plain) {
            result += c;
        } else if (c == ' ' && for_query) {
            result += '+';
        } else {
            result += fmt::format("%{:02X}", static_cast<unsigned char>(c));
        }
    }
    return result;
}

Value url_filter(Runtime& runtime, const Value& input, const Arguments& arguments) {
    static_cast<void>(bind("urlencode", arguments, {}, 0));
    Meter& meter = runtime.meter();
    if (input.is(Kind::kText) || !can_iterate(input))
        return made(runtime, url_quoted(str_of(meter, input), false));
    const Value pairs = input.is(Kind::kDict) ? new_view(&meter, input, View::What::kItems) : input;
    std::string result;
    for (const Value& pair : all_of(meter, pairs)) {
        const Values both = all_of(meter, pair);
        if (both.size() != 2) throw Fault("urlencode needs pairs");
        if (!result.empty()) result += '&';
        result += url_quoted(str_of(meter, both[0]), true) + "=" +
                  url_quoted(str_of(meter, both[1]), true);
        meter.check_bytes(result.size());
    }
    return made(runtime, std::move(result));
}

// transformers' own `tojson`: json.dumps with its arguments.
Value json_filter(Runtime& runtime, const Value& input, const Arguments& arguments) {
    const Bound bound =
        bind("tojson", arguments, {"ensure_ascii", "indent", "separators", "sort_keys"}, 0);
    JsonStyle style;
    style.ascii_only = is_on(bound[0]);
    style.sort_keys = is_on(bound[3]);
    if (bound[1] != nullptr && bound[1]->is(Kind::kText)) {
        style.indent = bound[1]->text();
    } else if (bound[1] != nullptr && !bound[1]->is(Kind::kNone)) {
        const int64_t width = std::max<int64_t>(0, whole_number("tojson", bound[1]));
        if (width > 1000) throw Fault("tojson indents by 1000 blanks at most");
        style.indent = std::string(size_t(width), ' ');
    }
    if (style.indent) style.item_separator = ",";
    if (bound[2] != nullptr && !bound[2]->is(Kind::kNone)) {
        const Values both = all_of(runtime.meter(), *bound[2]);
        if (both.size() != 2) throw Fault("tojson needs two separators");
        style.item_separator = required_text("tojson", both[0]);
        style.key_separator = required_text("tojson", both[1]);
    }
    return made(runtime, json_of(runtime.meter(), style, input));
}

template <const char* kName>
Value refused_filter(Runtime& /*runtime*/, const Value& /*input*/, const Arguments& /*arguments*/) {
    throw Fault(fmt::format("the filter `{}` is not supported", kName));
}
constexpr char kPprint[] = "pprint";
constexpr char kRandom[] = "random";
constexpr char kStripTags[] = "striptags";
constexpr char kUrlize[] = "urlize";
constexpr char kWordWrap[] = "wordwrap";
constexpr char kXmlAttr[] = "xmlattr";

constexpr Filter kTextFilters[] = {
    {"capitalize", cased<capitalized_text>},
    {"center", center_filter},
    {"e", escape_filter},
    {"escape", escape_filter},
    {"forceescape", force_escape_filter},
    {"format", format_filter},
    {"indent", indent_filter},
    {"lower", cased<lower_text>},
    {"replace", replace_filter},
    {"safe", safe_filter},
    {"string", string_filter},
    {"title", cased<title_words>},
    {"tojson", json_filter},
    {"trim", trim_filter},
    {"truncate", truncate_filter},
    {"upper", cased<upper_text>},
    {"urlencode", url_filter},
    {"wordcount", word_count_filter},
    {"pprint", refused_filter<kPprint>},
    {"random", refused_filter<kRandom>},
    {"striptags", refused_filter<kStripTags>},
    {"urlize", refused_filter<kUrlize>},
    {"wordwrap", refused_filter<kWordWrap>},
    {"xmlattr", refused_filter<kXmlAttr>},
};

}  // namespace

std::span<const Filter> text_filters() {
    return kTextFilters;
}

}  // namespace dslaunch::text::jinja
