#include "text/chat_template/objects/methods.h"

#include "text/chat_template/objects/brace_format.h"
#include "text/chat_template/objects/slices.h"
#include "text/chat_template/values/compare.h"
#include "text/chat_template/values/letters.h"
#include "text/chat_template/values/points.h"
#include "text/chat_template/values/printing.h"

#include <fmt/format.h>

#include <algorithm>

namespace dslaunch::text::jinja {
namespace {

Value piece(Runtime& runtime, std::string_view text) {
    return new_text(&runtime.meter(), std::string(text));
}

bool is_given(const Value* value) {
    return value != nullptr && !value->is(Kind::kNone);
}

// Words between blanks, COUNT splits at most, from the left.
Values words_of(Runtime& runtime, std::string_view text, int64_t count) {
    Values words;
    text = strip_blanks(text, {.left = true, .right = false});
    while (!text.empty()) {
        if (count-- == 0) {
            words.push_back(piece(runtime, strip_blanks(text, {.left = false, .right = true})));
            break;
        }
        size_t end = 0;
        while (end < text.size() && !is_space_point(point_at(text, end)))
            end += point_bytes(text[end]);
        words.push_back(piece(runtime, text.substr(0, end)));
        text = strip_blanks(text.substr(end), {.left = true, .right = false});
    }
    return words;
}

Values words_from_right(Runtime& runtime, std::string_view text, int64_t count) {
    Values words;
    text = strip_blanks(text, {.left = false, .right = true});
    while (!text.empty()) {
        if (count-- == 0) {
            words.push_back(piece(runtime, strip_blanks(text, {.left = true, .right = false})));
            break;
        }
        size_t begin = text.size();
        while (begin > 0) {
            const size_t before = point_before(text, begin);
            if (is_space_point(point_at(text, before))) break;
            begin = before;
        }
        words.push_back(piece(runtime, text.substr(begin)));
        text = strip_blanks(text.substr(0, begin), {.left = false, .right = true});
    }
    std::reverse(words.begin(), words.end());
    return words;
}

Values pieces_between(Runtime& runtime, std::string_view text, std::string_view separator,
                      int64_t count, bool from_right) {
    if (separator.empty()) throw Fault("a text is split at an empty text");
    Values pieces;
    for (; count != 0; --count) {
        const size_t at = from_right ? text.rfind(separator) : text.find(separator);
        if (at == std::string_view::npos) break;
        if (from_right) {
            pieces.push_back(piece(runtime, text.substr(at + separator.size())));
            text = text.substr(0, at);
        } else {
            pieces.push_back(piece(runtime, text.substr(0, at)));
            text.remove_prefix(at + separator.size());
        }
    }
    pieces.push_back(piece(runtime, text));
    if (from_right) std::reverse(pieces.begin(), pieces.end());
    return pieces;
}

Value split_text(Runtime& runtime, const Value& self, const Arguments& arguments, bool from_right) {
    const auto bound = bind("split()", arguments, {"sep", "maxsplit"}, 0);
    const int64_t count = whole_number("split()", bound[1], -1);
    const std::string& text = self.text();
    runtime.meter().step_text(text.size());
    if (is_given(bound[0])) {
        return new_list(
            &runtime.meter(),
            pieces_between(runtime, text, required_text("split()", *bound[0]), count, from_right));
    }
    return new_list(&runtime.meter(), from_right ? words_from_right(runtime, text, count)
                                                 : words_of(runtime, text, count));
}

Value strip_text(Runtime& runtime, const Value& self, const Arguments& arguments,
                 StripSides sides) {
    const auto bound = bind("strip()", arguments, {"_chars"}, 0);
    runtime.meter().step_text(self.text().size());
    const std::string_view text =
        is_given(bound[0]) ? strip_points(self.text(), required_text("strip()", *bound[0]), sides)
                           : strip_blanks(self.text(), sides);
    if (text.size() == self.text().size()) return self;
    return new_text(&runtime.meter(), std::string(text), self.text_object().is_safe);
}

Value begins_or_ends(Runtime& runtime, const Value& self, const Arguments& arguments, bool ends) {
    const char* who = ends ? "endswith()" : "startswith()";
    const auto bound = bind(who, arguments, {"_text", "_start", "_end"}, 1);
    const TextPart part = part_of(self.text_object(), bound[1], bound[2]);
    const auto one = [&](const Value& value) {
        const std::string& text = required_text(who, value);
        runtime.meter().step_text(text.size());
        if (!part.fits) return false;
        return ends ? part.text.ends_with(text) : part.text.starts_with(text);
    };
    if (!bound[0]->is(Kind::kTuple)) return Value::boolean(one(*bound[0]));
    const Values& texts = bound[0]->items();
    return Value::boolean(std::any_of(texts.begin(), texts.end(), one));
}

// -1 when it is not there.
int64_t place_of(Runtime& runtime, const Value& self, const Arguments& arguments, bool from_right) {
    const auto bound = bind("find()", arguments, {"_sub", "_start", "_end"}, 1);
    const TextPart part = part_of(self.text_object(), bound[1], bound[2]);
    const std::string& sub = required_text("find()", *bound[0]);
    if (!part.fits) return -1;
    runtime.meter().step_text(part.text.size());
    const size_t at = from_right ? part.text.rfind(sub) : part.text.find(sub);
    if (at == std::string_view::npos) return -1;
    return part.first_point + count_points(part.text.substr(0, at));
}

Value place_or_fault(Runtime& runtime, const Value& self, const Arguments& arguments,
                     bool from_right) {
    const int64_t place = place_of(runtime, self, arguments, from_right);
    if (place < 0) throw Fault("index() looks for a text that is not there");
    return Value::integer(place);
}

Value count_in_text(Runtime& runtime, const Value& self, const Arguments& arguments) {
    const auto bound = bind("count()", arguments, {"_sub", "_start", "_end"}, 1);
    const TextPart part = part_of(self.text_object(), bound[1], bound[2]);
    const std::string& sub = required_text("count()", *bound[0]);
    if (!part.fits) return Value::integer(0);
    runtime.meter().step_text(part.text.size());
    if (sub.empty()) return Value::integer(count_points(part.text) + 1);
    int64_t count = 0;
    for (size_t at = 0; (at = part.text.find(sub, at)) != std::string_view::npos; ++count)
        at += sub.size();
    return Value::integer(count);
}

Value replace_text(Runtime& runtime, const Value& self, const Arguments& arguments) {
    const auto bound = bind("replace()", arguments, {"_old", "_new", "_count"}, 2);
    return new_text(
        &runtime.meter(),
        replaced(runtime.meter(), self.text(), required_text("replace()", *bound[0]),
                 required_text("replace()", *bound[1]), whole_number("replace()", bound[2], -1)));
}

Value join_texts(Runtime& runtime, const Value& self, const Arguments& arguments) {
    const auto bound = bind("join()", arguments, {"_iterable"}, 1);
    std::string joined;
    Cursor cursor(runtime.meter(), *bound[0]);
    bool is_first = true;
    for (Value item; cursor.next(item); is_first = false) {
        if (!is_first) joined += self.text();
        joined += required_text("join()", item);
        runtime.meter().step_text(self.text().size());
        runtime.meter().check_bytes(joined.size());
    }
    return new_text(&runtime.meter(), std::move(joined));
}

Value partition_text(Runtime& runtime, const Value& self, const Arguments& arguments,
                     bool from_right) {
    const auto bound = bind("partition()", arguments, {"_sep"}, 1);
    const std::string& separator = required_text("partition()", *bound[0]);
    if (separator.empty()) throw Fault("a text is split at an empty text");
    const std::string_view text = self.text();
    const size_t at = from_right ? text.rfind(separator) : text.find(separator);
    const Value empty = piece(runtime, "");
    if (at == std::string_view::npos) {
        return new_tuple(&runtime.meter(),
                         from_right ? Values{empty, empty, self} : Values{self, empty, empty});
    }
    return new_tuple(&runtime.meter(),
                     {piece(runtime, text.substr(0, at)), piece(runtime, separator),
                      piece(runtime, text.substr(at + separator.size()))});
}

Value without_affix(Runtime& runtime, const Value& self, const Arguments& arguments, bool suffix) {
    const auto bound = bind("removeprefix()", arguments, {"_affix"}, 1);
    const std::string& affix = required_text("removeprefix()", *bound[0]);
    std::string_view text = self.text();
    if (suffix ? !text.ends_with(affix) : !text.starts_with(affix)) return self;
    suffix ? text.remove_suffix(affix.size()) : text.remove_prefix(affix.size());
    return piece(runtime, text);
}

// WHICH: 'l' and 'r' say where the text goes, 'c' into the middle.
Value justify_text(Runtime& runtime, const Value& self, const Arguments& arguments, char which) {
    const auto bound = bind("center()", arguments, {"_width", "_fill"}, 1);
    const int64_t width = whole_number("center()", bound[0]);
    const std::string fill = bound[1] == nullptr ? " " : required_text("center()", *bound[1]);
    if (count_points(fill) != 1) throw Fault("a text is filled up with one character");
    if (which == 'c')
        return piece(runtime, centered(runtime.meter(), self.text_object(), width, fill));
    const int64_t missing = std::max<int64_t>(0, width - self.text_object().points);
    runtime.meter().check_bytes(size_t(missing) * fill.size());
    std::string filling;
    for (int64_t i = 0; i < missing; ++i) filling += fill;
    return new_text(&runtime.meter(), which == 'l' ? self.text() + filling : filling + self.text());
}

Value zero_fill_text(Runtime& runtime, const Value& self, const Arguments& arguments) {
    const auto bound = bind("zfill()", arguments, {"_width"}, 1);
    const int64_t missing = whole_number("zfill()", bound[0]) - self.text_object().points;
    if (missing <= 0) return self;
    runtime.meter().check_bytes(size_t(missing));
    std::string text = self.text();
    const bool has_sign = text.starts_with('-') || text.starts_with('+');
    text.insert(has_sign ? 1 : 0, size_t(missing), '0');
    return new_text(&runtime.meter(), std::move(text));
}

Value lines_of_text(Runtime& runtime, const Value& self, const Arguments& arguments) {
    const auto bound = bind("splitlines()", arguments, {"keepends"}, 0);
    const bool keeps = bound[0] != nullptr && is_true(*bound[0]);
    return new_list(&runtime.meter(), split_lines(runtime.meter(), self.text(), keeps));
}

Value expand_tabs(Runtime& runtime, const Value& self, const Arguments& arguments) {
    const auto bound = bind("expandtabs()", arguments, {"tabsize"}, 0);
    const int64_t size = whole_number("expandtabs()", bound[0], 8);
    std::string text;
    int64_t column = 0;
    for (const char c : self.text()) {
        if (c == '\t') {
            const int64_t blanks = size > 0 ? size - column % size : 0;
            runtime.meter().check_bytes(text.size() + size_t(blanks));
            text.append(size_t(blanks), ' ');
            column += blanks;
            continue;
        }
        text += c;
        if (c == '\n' || c == '\r') {
            column = 0;
        } else if ((static_cast<unsigned char>(c) & 0xC0) != 0x80) {
            ++column;
        }
    }
    return new_text(&runtime.meter(), std::move(text));
}

template <std::string (*kChange)(std::string_view)>
Value changed_text(Runtime& runtime, const Value& self, const Arguments& arguments) {
    static_cast<void>(bind("the method", arguments, {}, 0));
    runtime.meter().step_text(self.text().size() * 16);
    return new_text(&runtime.meter(), kChange(self.text()), self.text_object().is_safe);
}

std::string folded_text(std::string_view text) {
    for (const char c : text)
        if (static_cast<unsigned char>(c) >= 0x80)
            throw Fault("casefold() beyond ASCII is not supported: use lower()");
    return lower_text(text);
}

Value format_text_method(Runtime& runtime, const Value& self, const Arguments& arguments) {
    return new_text(&runtime.meter(), brace_format(runtime, self.text(), arguments));
}

Value format_map_method(Runtime& runtime, const Value& self, const Arguments& arguments) {
    const auto bound = bind("format_map()", arguments, {"_mapping"}, 1);
    if (!bound[0]->is(Kind::kDict)) throw Fault("format_map() needs a dict");
    Arguments named;
    for (const auto& [key, value] : bound[0]->dict().entries)
        if (key.is(Kind::kText)) named.named.emplace_back(key.text(), value);
    return new_text(&runtime.meter(), brace_format(runtime, self.text(), named));
}

constexpr StripSides kLeftSide{.left = true, .right = false};
constexpr StripSides kRightSide{.left = false, .right = true};

// clang-format off
constexpr Method kTextMethods[] = {
    {"capitalize", changed_text<capitalized_text>},
    {"casefold", changed_text<folded_text>},
    {"center", [](Runtime& r, const Value& s, const Arguments& a) { return justify_text(r, s, a, 'c'); }},
    {"count", count_in_text},
    {"endswith", [](Runtime& r, const Value& s, const Arguments& a) { return begins_or_ends(r, s, a, true); }},
    {"expandtabs", expand_tabs},
    {"find", [](Runtime& r, const Value& s, const Arguments& a) { return Value::integer(place_of(r, s, a, false)); }},
    {"format", format_text_method},
    {"format_map", format_map_method},
    {"index", [](Runtime& r, const Value& s, const Arguments& a) { return place_or_fault(r, s, a, false); }},
    {"join", join_texts},
    {"ljust", [](Runtime& r, const Value& s, const Arguments& a) { return justify_text(r, s, a, 'l'); }},
    {"lower", changed_text<lower_text>},
    {"lstrip", [](Runtime& r, const Value& s, const Arguments& a) { return strip_text(r, s, a, kLeftSide); }},
    {"partition", [](Runtime& r, const Value& s, const Arguments& a) { return partition_text(r, s, a, false); }},
    {"removeprefix", [](Runtime& r, const Value& s, const Arguments& a) { return without_affix(r, s, a, false); }},
    {"removesuffix", [](Runtime& r, const Value& s, const Arguments& a) { return without_affix(r, s, a, true); }},
    {"replace", replace_text},
    {"rfind", [](Runtime& r, const Value& s, const Arguments& a) { return Value::integer(place_of(r, s, a, true)); }},
    {"rindex", [](Runtime& r, const Value& s, const Arguments& a) { return place_or_fault(r, s, a, true); }},
    {"rjust", [](Runtime& r, const Value& s, const Arguments& a) { return justify_text(r, s, a, 'r'); }},
    {"rpartition", [](Runtime& r, const Value& s, const Arguments& a) { return partition_text(r, s, a, true); }},
    {"rsplit", [](Runtime& r, const Value& s, const Arguments& a) { return split_text(r, s, a, true); }},
    {"rstrip", [](Runtime& r, const Value& s, const Arguments& a) { return strip_text(r, s, a, kRightSide); }},
    {"split", [](Runtime& r, const Value& s, const Arguments& a) { return split_text(r, s, a, false); }},
    {"splitlines", lines_of_text},
    {"startswith", [](Runtime& r, const Value& s, const Arguments& a) { return begins_or_ends(r, s, a, false); }},
    {"strip", [](Runtime& r, const Value& s, const Arguments& a) { return strip_text(r, s, a, {}); }},
    {"swapcase", changed_text<swapped_text>},
    {"title", changed_text<title_text>},
    {"upper", changed_text<upper_text>},
    {"zfill", zero_fill_text},
};
// clang-format on

}  // namespace

std::span<const Method> text_methods() {
    return kTextMethods;
}

Values split_lines(Meter& meter, std::string_view text, bool keeps_ends) {
    meter.step_text(text.size());
    Values lines;
    size_t begin = 0;
    for (size_t i = 0; i < text.size();) {
        size_t end = i + point_bytes(text[i]);
        if (!is_line_end_point(point_at(text, i))) {
            i = end;
            continue;
        }
        if (text[i] == '\r' && end < text.size() && text[end] == '\n') ++end;
        const size_t stop = keeps_ends ? end : i;
        lines.push_back(new_text(&meter, std::string(text.substr(begin, stop - begin))));
        begin = i = end;
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
        // An empty text is found before each character and at the end.
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

std::string centered(Meter& meter, const Text& text, int64_t width, std::string_view fill) {
    const int64_t missing = std::max<int64_t>(0, width - text.points);
    meter.check_bytes(size_t(missing) * fill.size());
    meter.step_text(size_t(missing));
    // Python's way to halve an odd number.
    const int64_t left = missing / 2 + (missing & width & 1);
    std::string result;
    for (int64_t i = 0; i < left; ++i) result += fill;
    result += text.text;
    for (int64_t i = left; i < missing; ++i) result += fill;
    return result;
}

}  // namespace dslaunch::text::jinja
