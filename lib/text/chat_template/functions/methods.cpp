// The methods of strings and dicts.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "text/chat_template/functions/functions.h"
#include "text/chat_template/values/compare.h"
#include "text/chat_template/values/letters.h"
#include "text/unicode/code_points.h"

namespace dslaunch::text::jinja {
namespace {

constexpr StripSides kLeftSide{.left = true, .right = false};
constexpr StripSides kRightSide{.left = false, .right = true};

Value piece(Runtime& runtime, std::string_view text) {
    return new_text(&runtime.meter(), std::string(text));
}

// Splits TEXT at blanks into words, from the left, at most COUNT times.
Values words_of(Runtime& runtime, std::string_view text, int64_t count) {
    Values words;
    text = strip_blanks(text, kLeftSide);
    while (!text.empty()) {
        if (count-- == 0) {
            words.push_back(piece(runtime, text));
            break;
        }
        size_t end = 0;
        while (end < text.size() && !is_space_point(point_at(text, end)))
            end += point_bytes(text[end]);
        words.push_back(piece(runtime, text.substr(0, end)));
        text = strip_blanks(text.substr(end), kLeftSide);
    }
    return words;
}

template <bool kFromRight>
Value split_method(Runtime& runtime, const Value& self, const Given& given) {
    std::string_view text = self.text();
    int64_t count = given.integer(1, -1);
    runtime.meter().step_text(text.size());
    if (!given.is_set(0)) {
        if (kFromRight && count >= 0)
            throw Fault("rsplit() with a count but without a separator is not supported");
        return new_list(&runtime.meter(), words_of(runtime, text, count));
    }
    const std::string_view separator = given.text(0);
    if (separator.empty()) throw Fault("a string cannot be split at an empty separator");
    Values pieces;
    for (; count != 0; --count) {
        const size_t at = kFromRight ? text.rfind(separator) : text.find(separator);
        if (at == std::string_view::npos) break;
        const std::string_view before = text.substr(0, at);
        const std::string_view after = text.substr(at + separator.size());
        pieces.push_back(piece(runtime, kFromRight ? after : before));
        text = kFromRight ? before : after;
    }
    pieces.push_back(piece(runtime, text));
    if (kFromRight) std::ranges::reverse(pieces);
    return new_list(&runtime.meter(), std::move(pieces));
}

template <bool kLeft, bool kRight>
Value strip_method(Runtime& runtime, const Value& self, const Given& given) {
    constexpr StripSides kSides{kLeft, kRight};
    runtime.meter().step_text(self.text().size());
    const std::string_view text = given.is_set(0) ? strip_points(self.text(), given.text(0), kSides)
                                                  : strip_blanks(self.text(), kSides);
    if (text.size() == self.text().size()) return self;
    return new_text(&runtime.meter(), std::string(text), self.text_object().is_safe);
}

template <bool kEnds>
Value begins_or_ends_method(Runtime& runtime, const Value& self, const Given& given) {
    const auto has = [&](const Value& value) {
        const std::string& affix = required_text(given.who(), value);
        runtime.meter().step_text(affix.size());
        return kEnds ? self.text().ends_with(affix) : self.text().starts_with(affix);
    };
    if (!given[0]->is(ValueKind::kTuple)) return Value::boolean(has(*given[0]));
    return Value::boolean(std::ranges::any_of(given[0]->items(), has));
}

template <bool kFromRight>
Value place_method(Runtime& runtime, const Value& self, const Given& given) {
    const std::string& text = self.text();
    runtime.meter().step_text(text.size());
    const size_t at = kFromRight ? text.rfind(given.text(0)) : text.find(given.text(0));
    if (at == std::string::npos) return Value::integer(-1);
    return Value::integer(count_points(std::string_view(text).substr(0, at)));
}

Value count_method(Runtime& runtime, const Value& self, const Given& given) {
    const std::string& text = self.text();
    const std::string& sub = given.text(0);
    runtime.meter().step_text(text.size());
    if (sub.empty()) return Value::integer(self.text_object().points + 1);
    int64_t found = 0;
    for (size_t at = 0; (at = text.find(sub, at)) != std::string::npos; at += sub.size()) ++found;
    return Value::integer(found);
}

Value replace_method(Runtime& runtime, const Value& self, const Given& given) {
    return new_text(&runtime.meter(), replaced(runtime.meter(), self.text(), given.text(0),
                                               given.text(1), given.integer(2, -1)));
}

Value join_method(Runtime& runtime, const Value& self, const Given& given) {
    std::string joined;
    Cursor cursor(runtime.meter(), *given[0]);
    bool is_first = true;
    for (Value item; cursor.next(item); is_first = false) {
        if (!is_first) joined += self.text();
        joined += required_text("join", item);
        runtime.meter().step_text(self.text().size());
        runtime.meter().check_bytes(joined.size());
    }
    return new_text(&runtime.meter(), std::move(joined));
}

template <bool kSuffix>
Value without_affix_method(Runtime& runtime, const Value& self, const Given& given) {
    const std::string& affix = given.text(0);
    std::string_view text = self.text();
    if (kSuffix ? !text.ends_with(affix) : !text.starts_with(affix)) return self;
    kSuffix ? text.remove_suffix(affix.size()) : text.remove_prefix(affix.size());
    return piece(runtime, text);
}

Value split_lines_method(Runtime& runtime, const Value& self, const Given& given) {
    return new_list(&runtime.meter(), split_lines(runtime.meter(), self.text(), given.is_on(0)));
}

template <std::string (*kChange)(std::string_view)>
Value changed_method(Runtime& runtime, const Value& self, const Given& /*given*/) {
    runtime.meter().step_text(self.text().size() * 16);
    return new_text(&runtime.meter(), kChange(self.text()), self.text_object().is_safe);
}

// Implements str.isalpha() and similar methods: returns true if the string is not empty and kIs
// holds for all its characters.
template <bool (*kIs)(char32_t)>
Value all_are_method(Runtime& runtime, const Value& self, const Given& /*given*/) {
    const std::string& text = self.text();
    runtime.meter().step_text(text.size());
    bool are_all = !text.empty();
    for (size_t at = 0; are_all && at < text.size();) are_all = kIs(next_point(text, at));
    return Value::boolean(are_all);
}

Value get_method(Runtime& runtime, const Value& self, const Given& given) {
    const Value* value = find_key(runtime.meter(), self.dict(), *given[0]);
    if (value != nullptr) return *value;
    return given[1] == nullptr ? Value::none() : *given[1];
}

enum class Part { kKeys, kValues, kItems };

template <Part kPart>
Value view_method(Runtime& runtime, const Value& self, const Given& /*given*/) {
    Values items;
    for (const auto& [key, value] : self.dict().entries)
        items.push_back(kPart == Part::kKeys     ? key
                        : kPart == Part::kValues ? value
                                                 : new_tuple(&runtime.meter(), {key, value}));
    return new_sequence(&runtime.meter(), ValueKind::kView, std::move(items));
}

constexpr Native kTextMethods[] = {
    {"capitalize", changed_method<capitalized_text>},
    {"count", count_method, {"_sub"}, 1},
    {"endswith", begins_or_ends_method<true>, {"_text"}, 1},
    {"find", place_method<false>, {"_sub"}, 1},
    {"format",
     [](Runtime& r, const Value& s, const Given& g) { return brace_format(r, s, g); },
     {"*"}},
    {"isalnum", all_are_method<is_letter_or_number_point>},
    {"isalpha", all_are_method<is_letter_point>},
    {"isdigit", all_are_method<is_digit_point>},
    {"isspace", all_are_method<is_space_point>},
    {"join", join_method, {"_iterable"}, 1},
    {"lower", changed_method<lower_text>},
    {"lstrip", strip_method<true, false>, {"_chars"}},
    {"removeprefix", without_affix_method<false>, {"_prefix"}, 1},
    {"removesuffix", without_affix_method<true>, {"_suffix"}, 1},
    {"replace", replace_method, {"_old", "_new", "_count"}, 2},
    {"rfind", place_method<true>, {"_sub"}, 1},
    {"rsplit", split_method<true>, {"sep", "maxsplit"}},
    {"rstrip", strip_method<false, true>, {"_chars"}},
    {"split", split_method<false>, {"sep", "maxsplit"}},
    {"splitlines", split_lines_method, {"keepends"}},
    {"startswith", begins_or_ends_method<false>, {"_text"}, 1},
    {"strip", strip_method<true, true>, {"_chars"}},
    {"title", changed_method<title_text>},
    {"upper", changed_method<upper_text>},
};
constexpr Native kDictMethods[] = {
    {"get", get_method, {"_key", "_default"}, 1},
    {"items", view_method<Part::kItems>},
    {"keys", view_method<Part::kKeys>},
    {"values", view_method<Part::kValues>},
};
// The methods of Python that are not supported here.
constexpr std::string_view kRefusedOfText[] = {
    "casefold", "center",     "encode",       "expandtabs", "format_map", "index",
    "isascii",  "isdecimal",  "isidentifier", "islower",    "isnumeric",  "isprintable",
    "istitle",  "isupper",    "ljust",        "maketrans",  "partition",  "rindex",
    "rjust",    "rpartition", "swapcase",     "translate",  "zfill"};
constexpr std::string_view kRefusedOfDict[] = {"copy", "fromkeys"};
constexpr std::string_view kRefusedOfList[] = {"copy", "count", "index"};
// The methods that the sandbox hides.
constexpr std::string_view kHiddenOfList[] = {"append", "clear",  "extend",  "insert",
                                              "pop",    "remove", "reverse", "sort"};
constexpr std::string_view kHiddenOfDict[] = {"clear", "pop", "popitem", "setdefault", "update"};

}  // namespace

const Native* find_method(const Value& self, std::string_view name) {
    if (self.is(ValueKind::kText)) return find_native(kTextMethods, name);
    return self.is(ValueKind::kDict) ? find_native(kDictMethods, name) : nullptr;
}

bool is_hidden_method(const Value& self, std::string_view name) {
    if (self.is(ValueKind::kList)) return std::ranges::count(kHiddenOfList, name) > 0;
    return self.is(ValueKind::kDict) && std::ranges::count(kHiddenOfDict, name) > 0;
}

bool is_refused_method(const Value& self, std::string_view name) {
    if (self.is(ValueKind::kText)) return std::ranges::count(kRefusedOfText, name) > 0;
    if (self.is_sequence() || self.is(ValueKind::kRange))
        return std::ranges::count(kRefusedOfList, name) > 0;
    return self.is(ValueKind::kDict) && std::ranges::count(kRefusedOfDict, name) > 0;
}

Values split_lines(Meter& meter, std::string_view text, bool keeps_ends) {
    meter.step_text(text.size());
    Values lines;
    size_t begin = 0;
    for (size_t at = 0, end = 0; at < text.size(); at = end) {
        if (!is_line_end_point(next_point(text, end))) continue;
        if (text[at] == '\r' && end < text.size() && text[end] == '\n') ++end;
        lines.push_back(
            new_text(&meter, std::string(text.substr(begin, (keeps_ends ? end : at) - begin))));
        begin = end;
    }
    if (begin < text.size()) lines.push_back(new_text(&meter, std::string(text.substr(begin))));
    return lines;
}

std::string replaced(Meter& meter, std::string_view text, std::string_view old, std::string_view by,
                     int64_t count) {
    meter.step_text(text.size());
    std::string result;
    size_t at = 0;
    for (; count != 0; --count) {
        // An empty string is found before each character and at the end.
        const size_t found = old.empty() ? at : text.find(old, at);
        if (found == std::string_view::npos) break;
        result += text.substr(at, found - at);
        result += by;
        meter.check_bytes(result.size());
        meter.step_text(by.size());
        at = found + old.size();
        if (!old.empty()) continue;
        if (at >= text.size()) break;
        const size_t bytes = point_bytes(text[at]);
        result += text.substr(at, bytes);
        at += bytes;
    }
    return result += text.substr(std::min(at, text.size()));
}

}  // namespace dslaunch::text::jinja
