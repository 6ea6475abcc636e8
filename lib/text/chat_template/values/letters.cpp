#include "text/chat_template/values/letters.h"

#include <fmt/format.h>
#include <utf8proc.h>

#include <algorithm>
#include <span>
#include <utility>

#include "base/text.h"
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

bool is_in(std::span<const std::pair<char32_t, char32_t>> ranges, char32_t point) {
    return std::ranges::any_of(
        ranges, [&](const auto& range) { return point >= range.first && point <= range.second; });
}

bool is_one_of(char32_t point, std::u32string_view points) {
    return points.find(point) != std::u32string_view::npos;
}

// Returns true for letters whose capital form in Python consists of several letters.
bool has_long_capital(char32_t point) {
    if (point < 0x80 || is_one_of(point, U"\u0130\u1E9E")) return false;
    utf8proc_int32_t folded[4];
    int boundary = 0;
    return utf8proc_decompose_char(static_cast<utf8proc_int32_t>(point), folded, 4,
                                   UTF8PROC_CASEFOLD, &boundary) > 1;
}

// Appends the capital form of a letter that has no single capital letter: "SS" for "ß". The form
// consists of the capitals of the letter's case folding. If IS_TITLE is true, only the first letter
// becomes a capital, and an iota subscript stays a subscript.
void append_long_capital(std::string& text, char32_t point, bool is_title) {
    constexpr char32_t kIotaBelow = 0x345, kIota = 0x3b9;
    utf8proc_int32_t letters[4];
    int boundary = 0;
    const utf8proc_ssize_t count = utf8proc_decompose_char(
        static_cast<utf8proc_int32_t>(point), letters, 4, UTF8PROC_CASEFOLD, &boundary);
    const auto capital = [](char32_t letter) { return mapped(letter, utf8proc_toupper); };
    const auto first = static_cast<char32_t>(letters[0]);
    const bool is_all = !is_title || capital(first) == first;
    const bool has_iota_below = point >= 0x1f80 && point <= 0x1fff;
    for (utf8proc_ssize_t i = 0; i < count; ++i) {
        const auto letter = static_cast<char32_t>(letters[i]);
        const bool is_below = has_iota_below && i > 0 && i + 1 == count && letter == kIota;
        append_utf8(text, is_all || i == 0 ? capital(letter) : is_below ? kIotaBelow : letter);
    }
}

void append_capital(std::string& text, char32_t point, bool is_title) {
    // Python does not use the capital ẞ.
    const char32_t title = point == U'ß' ? point : mapped(point, utf8proc_totitle);
    const bool has_title = title != point || category_of(point) == UTF8PROC_CATEGORY_LT;
    if (has_long_capital(point) && !(is_title && has_title))
        return append_long_capital(text, point, is_title);
    append_utf8(text, is_title ? title : mapped(point, utf8proc_toupper));
}

// Returns true for the letters of category Lm that Unicode counts as small (Other_Lowercase).
bool is_small_modifier(char32_t point) {
    constexpr std::pair<char32_t, char32_t> kRanges[] = {
        {0x2b0, 0x2b8},     {0x2c0, 0x2c1},     {0x2e0, 0x2e4},    {0x37a, 0x37a},
        {0x1d2c, 0x1d6a},   {0x1d78, 0x1d78},   {0x1d9b, 0x1dbf},  {0x2071, 0x2071},
        {0x207f, 0x207f},   {0x2090, 0x209c},   {0x2c7c, 0x2c7d},  {0xa69c, 0xa69d},
        {0xa770, 0xa770},   {0xa7f8, 0xa7f9},   {0xab5c, 0xab5f},  {0x10780, 0x10780},
        {0x10783, 0x10785}, {0x10787, 0x107b0}, {0x107b2, 0x107ba}};
    return is_in(kRanges, point);
}

bool is_cased(char32_t point) {
    const auto category = category_of(point);
    return category == UTF8PROC_CATEGORY_LU || category == UTF8PROC_CATEGORY_LL ||
           category == UTF8PROC_CATEGORY_LT || mapped(point, utf8proc_tolower) != point ||
           mapped(point, utf8proc_toupper) != point || is_one_of(point, U"ªº") ||
           is_small_modifier(point);
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

// Returns true if a word ends between the bytes BEGIN and END of TEXT: a letter comes before BEGIN,
// and no letter follows at END. Skips characters that Unicode ignores for letter case.
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

// Appends the small letter of the code point that has bytes [BEGIN, END) of SOURCE.
void append_small(std::string& text, std::string_view source, size_t begin, size_t end) {
    const char32_t point = point_at(source, begin);
    if (point == U'\u0130') {
        text += "i\u0307";
    } else if (point == U'Σ') {
        text += ends_word(source, begin, end) ? "ς" : "σ";
    } else {
        append_utf8(text, mapped(point, utf8proc_tolower));
    }
}

// Returns TEXT with some code points as capitals: those for which IS_FIRST(point) is true. All
// other code points become small. IS_FIRST is called once for each code point, in order.
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

// Removes code points at the ends of TEXT while IS_OUT(point) is true, and returns the rest. SIDES
// chooses the ends.
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

bool is_letter_point(char32_t point) {
    const auto category = category_of(point);
    return category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO;
}

bool is_digit_point(char32_t point) {
    // Digits of the category No: superscripts, subscripts, and digits in circles or brackets.
    constexpr std::pair<char32_t, char32_t> kOthers[] = {
        {0xb2, 0xb3},       {0xb9, 0xb9},       {0x1369, 0x1371},   {0x19da, 0x19da},
        {0x2070, 0x2070},   {0x2074, 0x2079},   {0x2080, 0x2089},   {0x2460, 0x2468},
        {0x2474, 0x247c},   {0x2488, 0x2490},   {0x24ea, 0x24ea},   {0x24f5, 0x24fd},
        {0x24ff, 0x24ff},   {0x2776, 0x277e},   {0x2780, 0x2788},   {0x278a, 0x2792},
        {0x10a40, 0x10a43}, {0x10e60, 0x10e68}, {0x11052, 0x1105a}, {0x1f100, 0x1f10a}};
    return category_of(point) == UTF8PROC_CATEGORY_ND || is_in(kOthers, point);
}

bool is_letter_or_number_point(char32_t point) {
    const auto category = category_of(point);
    return is_letter_point(point) || category == UTF8PROC_CATEGORY_ND ||
           category == UTF8PROC_CATEGORY_NL || category == UTF8PROC_CATEGORY_NO;
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
