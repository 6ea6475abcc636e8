#include "text/chat_template/values/letters.h"

#include <fmt/format.h>
#include <utf8proc.h>

#include <utility>

#include "text/chat_template/values/limits.h"
#include "text/unicode/code_points.h"

namespace dslaunch::text::jinja {
namespace {

utf8proc_category_t category_of(char32_t point) {
    return utf8proc_category(static_cast<utf8proc_int32_t>(point));
}

char32_t mapped(char32_t point, utf8proc_int32_t (*change)(utf8proc_int32_t)) {
    return static_cast<char32_t>(change(static_cast<utf8proc_int32_t>(point)));
}

bool is_one_of(char32_t point, std::u32string_view points) {
    return points.find(point) != std::u32string_view::npos;
}

// Returns true for the letters whose capital Python writes with several letters.
bool has_long_capital(char32_t point) {
    if (point < 0x80 || is_one_of(point, U"\u0130\u1E9E")) return false;
    utf8proc_int32_t folded[4];
    int boundary = 0;
    return utf8proc_decompose_char(static_cast<utf8proc_int32_t>(point), folded, 4,
                                   UTF8PROC_CASEFOLD, &boundary) > 1;
}

void append_capital(std::string& text, char32_t point, bool is_title) {
    if (point == U'ß') {
        text += is_title ? "Ss" : "SS";
        return;
    }
    if (has_long_capital(point)) {
        std::string letter;
        append_point(letter, point);
        throw Fault(fmt::format("the capital of `{}` is not supported", letter));
    }
    append_point(text, mapped(point, is_title ? utf8proc_totitle : utf8proc_toupper));
}

bool is_cased(char32_t point) {
    const auto category = category_of(point);
    return category == UTF8PROC_CATEGORY_LU || category == UTF8PROC_CATEGORY_LL ||
           category == UTF8PROC_CATEGORY_LT || mapped(point, utf8proc_tolower) != point ||
           mapped(point, utf8proc_toupper) != point || is_one_of(point, U"ªº");
}

bool is_case_ignorable(char32_t point) {
    const auto category = category_of(point);
    return category == UTF8PROC_CATEGORY_MN || category == UTF8PROC_CATEGORY_ME ||
           category == UTF8PROC_CATEGORY_CF || category == UTF8PROC_CATEGORY_LM ||
           category == UTF8PROC_CATEGORY_SK ||
           is_one_of(point,
                     U"'.:\u00B7\u0387\u055F\u05F4\u2018\u2019\u2024\u2027\uFE13\uFE52"
                     U"\uFE55\uFF07\uFF0E\uFF1A");
}

// Returns true if a letter stands before byte BEGIN of TEXT and no letter at END.
bool ends_word(std::string_view text, size_t begin, size_t end) {
    bool is_after_letter = false;
    while (begin > 0 && !is_after_letter) {
        begin = previous_begin(text, begin);
        const char32_t point = point_at(text, begin);
        is_after_letter = !is_case_ignorable(point) && is_cased(point);
        if (!is_after_letter && !is_case_ignorable(point)) return false;
    }
    while (is_after_letter && end < text.size()) {
        const char32_t point = next_point(text, end);
        if (!is_case_ignorable(point)) return !is_cased(point);
    }
    return is_after_letter;
}

// Appends the small letter of the code point at BEGIN of SOURCE, which ends before END.
void append_small(std::string& text, std::string_view source, size_t begin, size_t end) {
    const char32_t point = point_at(source, begin);
    if (point == U'\u0130') {
        text += "i\u0307";
    } else if (point == U'Σ') {
        text += ends_word(source, begin, end) ? "ς" : "σ";
    } else {
        append_point(text, mapped(point, utf8proc_tolower));
    }
}

// Writes capitals where IS_FIRST(point) says so before each code point, else small letters.
template <typename IsFirst>
std::string with_capitals(std::string_view text, const IsFirst& is_first) {
    std::string result;
    for (size_t begin = 0, end = 0; begin < text.size(); begin = end) {
        const char32_t point = next_point(text, end);
        if (is_first(point)) {
            append_capital(result, point, /*is_title=*/true);
        } else {
            append_small(result, text, begin, end);
        }
    }
    return result;
}

// Returns TEXT without the code points at its sides for which IS_OUT is true.
template <typename IsOut>
std::string_view stripped(std::string_view text, StripSides sides, const IsOut& is_out) {
    while (sides.left && !text.empty() && is_out(point_at(text, 0)))
        text.remove_prefix(point_bytes(text[0]));
    while (sides.right && !text.empty()) {
        const size_t last = previous_begin(text, text.size());
        if (!is_out(point_at(text, last))) break;
        text = text.substr(0, last);
    }
    return text;
}

}  // namespace

bool is_space_point(char32_t point) {
    if (point < 0x80) return (point >= 9 && point <= 13) || (point >= 28 && point <= 32);
    return is_line_end_point(point) || category_of(point) == UTF8PROC_CATEGORY_ZS;
}

bool is_line_end_point(char32_t point) {
    return (point >= 10 && point <= 13) || (point >= 28 && point <= 30) || point == 0x85 ||
           point == 0x2028 || point == 0x2029;
}

bool is_printable_point(char32_t point) {
    const auto category = category_of(point);
    return point == ' ' || (category > UTF8PROC_CATEGORY_CN && category < UTF8PROC_CATEGORY_ZS);
}

std::string upper_text(std::string_view text) {
    std::string result;
    for (size_t i = 0; i < text.size();)
        append_capital(result, next_point(text, i), /*is_title=*/false);
    return result;
}

std::string lower_text(std::string_view text) {
    return with_capitals(text, [](char32_t) { return false; });
}

std::string capitalized_text(std::string_view text) {
    bool is_first = true;
    return with_capitals(text, [&](char32_t) { return std::exchange(is_first, false); });
}

std::string title_text(std::string_view text) {
    bool in_word = false;
    return with_capitals(text,
                         [&](char32_t point) { return !std::exchange(in_word, is_cased(point)); });
}

std::string title_words(std::string_view text) {
    const auto is_gap = [&](size_t at) {
        return is_space_point(point_at(text, at)) || is_one_of(point_at(text, at), U"-({[<");
    };
    std::string result;
    for (size_t begin = 0, end = 0; begin < text.size(); begin = end) {
        while (end < text.size() && is_gap(end) == is_gap(begin)) end += point_bytes(text[end]);
        const size_t first = point_bytes(text[begin]);
        result += upper_text(text.substr(begin, first));
        result += lower_text(text.substr(begin + first, end - begin - first));
    }
    return result;
}

std::string_view strip_blanks(std::string_view text, StripSides sides) {
    return stripped(text, sides, is_space_point);
}

std::string_view strip_points(std::string_view text, std::string_view chars, StripSides sides) {
    return stripped(text, sides, [&](char32_t point) {
        for (size_t i = 0; i < chars.size();)
            if (next_point(chars, i) == point) return true;
        return false;
    });
}

}  // namespace dslaunch::text::jinja
