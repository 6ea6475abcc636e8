#include "text/chat_template/values/letters.h"

#include "text/chat_template/values/letter_tables.h"
#include "text/chat_template/values/points.h"

#include <algorithm>
#include <span>

namespace dslaunch::text::jinja {
namespace {

constexpr bool is_ascii_lower(uint32_t c) {
    return c >= 'a' && c <= 'z';
}
constexpr bool is_ascii_upper(uint32_t c) {
    return c >= 'A' && c <= 'Z';
}
constexpr bool is_ascii_digit(uint32_t c) {
    return c >= '0' && c <= '9';
}

// The row of TABLE that may hold POINT, nullptr without one.
template <typename Row>
const Row* letter_row(std::span<const Row> table, uint32_t point) {
    auto row = std::upper_bound(table.begin(), table.end(), point,
                                [](uint32_t p, const Row& r) { return p < r.first; });
    if (row == table.begin()) return nullptr;
    --row;
    const bool holds = point <= row->last && (point - row->first) % row->stride == 0;
    return holds ? &*row : nullptr;
}

bool in_table(std::span<const PointRange> table, uint32_t point) {
    return letter_row(table, point) != nullptr;
}

struct CaseTables {
    std::span<const PointShift> shifts;
    std::span<const PointText> texts;
};

void append_cased(std::string& text, uint32_t point, const CaseTables& tables) {
    const auto grown = std::lower_bound(tables.texts.begin(), tables.texts.end(), point,
                                        [](const PointText& t, uint32_t p) { return t.point < p; });
    if (grown != tables.texts.end() && grown->point == point) {
        text += grown->text;
        return;
    }
    const PointShift* shift = letter_row(tables.shifts, point);
    append_point(text, shift == nullptr ? point : uint32_t(int64_t(point) + shift->delta));
}

void append_upper(std::string& text, uint32_t point) {
    if (point < 0x80) {
        text += char(is_ascii_lower(point) ? point - 32 : point);
    } else {
        append_cased(text, point, {letter_tables().upper_shifts, letter_tables().upper_texts});
    }
}

void append_title(std::string& text, uint32_t point) {
    if (point < 0x80) {
        append_upper(text, point);
    } else {
        append_cased(text, point, {letter_tables().title_shifts, letter_tables().title_texts});
    }
}

bool is_case_ignorable(uint32_t point) {
    if (point >= 0x80) return in_table(letter_tables().case_ignorable, point);
    return point == '\'' || point == '.' || point == ':' || point == '^' || point == '`';
}

// True when the letter at AT of TEXT has a letter before it and none behind it.
bool ends_word(std::string_view text, size_t at) {
    bool before = false;
    for (size_t i = at; i > 0;) {
        i = point_before(text, i);
        const uint32_t point = point_at(text, i);
        if (is_case_ignorable(point)) continue;
        before = is_lower_point(point) || is_upper_point(point);
        break;
    }
    if (!before) return false;
    for (size_t i = at + point_bytes(text[at]); i < text.size(); i += point_bytes(text[i])) {
        const uint32_t point = point_at(text, i);
        if (!is_case_ignorable(point)) return !is_lower_point(point) && !is_upper_point(point);
    }
    return true;
}

void append_lower(std::string& text, std::string_view source, size_t at) {
    constexpr uint32_t kSigma = 0x3A3;
    const uint32_t point = point_at(source, at);
    if (point < 0x80) {
        text += char(is_ascii_upper(point) ? point + 32 : point);
    } else if (point == kSigma) {
        append_point(text, ends_word(source, at) ? 0x3C2 : 0x3C3);
    } else {
        append_cased(text, point, {letter_tables().lower_shifts, letter_tables().lower_texts});
    }
}

template <typename Append>
std::string each_point(std::string_view text, const Append& append) {
    std::string result;
    result.reserve(text.size());
    for (size_t i = 0; i < text.size(); i += point_bytes(text[i])) append(result, i);
    return result;
}

bool is_title_point(uint32_t point) {  // the letters Lt, as "ǅ"
    return (point >= 0x1C5 && point <= 0x1F2 &&
            (point == 0x1C5 || point == 0x1C8 || point == 0x1CB || point == 0x1F2)) ||
           (point >= 0x1F88 && point <= 0x1FAF && (point & 8) != 0) || point == 0x1FBC ||
           point == 0x1FCC || point == 0x1FFC;
}

}  // namespace

bool is_space_point(uint32_t point) {
    if (point < 0x80) return (point >= 9 && point <= 13) || (point >= 28 && point <= 32);
    return point == 0x85 || point == 0xA0 || point == 0x1680 ||
           (point >= 0x2000 && point <= 0x200A) || point == 0x2028 || point == 0x2029 ||
           point == 0x202F || point == 0x205F || point == 0x3000;
}

bool is_line_end_point(uint32_t point) {
    return (point >= 10 && point <= 13) || (point >= 28 && point <= 30) || point == 0x85 ||
           point == 0x2028 || point == 0x2029;
}

bool is_printable_point(uint32_t point) {
    if (point < 0x80) return point >= 0x20 && point != 0x7F;
    return !in_table(letter_tables().unprintable, point);
}

bool is_alpha_point(uint32_t point) {
    if (point < 0x80) return is_ascii_lower(point) || is_ascii_upper(point);
    return in_table(letter_tables().alpha, point);
}

bool is_decimal_point(uint32_t point) {
    return point < 0x80 ? is_ascii_digit(point) : in_table(letter_tables().decimal, point);
}

bool is_digit_point(uint32_t point) {
    return is_decimal_point(point) || (point >= 0x80 && in_table(letter_tables().digit, point));
}

bool is_numeric_point(uint32_t point) {
    return is_digit_point(point) || (point >= 0x80 && in_table(letter_tables().numeric, point));
}

bool is_lower_point(uint32_t point) {
    return point < 0x80 ? is_ascii_lower(point) : in_table(letter_tables().lower, point);
}

bool is_upper_point(uint32_t point) {
    return point < 0x80 ? is_ascii_upper(point) : in_table(letter_tables().upper, point);
}

std::string upper_text(std::string_view text) {
    return each_point(
        text, [&](std::string& result, size_t i) { append_upper(result, point_at(text, i)); });
}

std::string lower_text(std::string_view text) {
    return each_point(text, [&](std::string& result, size_t i) { append_lower(result, text, i); });
}

std::string capitalized_text(std::string_view text) {
    return each_point(text, [&](std::string& result, size_t i) {
        i == 0 ? append_title(result, point_at(text, i)) : append_lower(result, text, i);
    });
}

std::string swapped_text(std::string_view text) {
    return each_point(text, [&](std::string& result, size_t i) {
        const uint32_t point = point_at(text, i);
        if (is_upper_point(point)) {
            append_lower(result, text, i);
        } else if (is_lower_point(point)) {
            append_upper(result, point);
        } else {
            append_point(result, point);
        }
    });
}

std::string title_text(std::string_view text) {
    bool in_word = false;
    return each_point(text, [&](std::string& result, size_t i) {
        const uint32_t point = point_at(text, i);
        in_word ? append_lower(result, text, i) : append_title(result, point);
        in_word = is_lower_point(point) || is_upper_point(point) || is_title_point(point);
    });
}

std::string_view strip_blanks(std::string_view text, StripSides sides) {
    while (sides.left && !text.empty() && is_space_point(point_at(text, 0)))
        text.remove_prefix(point_bytes(text[0]));
    while (sides.right && !text.empty()) {
        const size_t last = point_before(text, text.size());
        if (!is_space_point(point_at(text, last))) break;
        text = text.substr(0, last);
    }
    return text;
}

std::string_view strip_points(std::string_view text, std::string_view chars, StripSides sides) {
    const auto stripped = [&](std::string_view point) {
        for (size_t i = 0; i < chars.size(); i += point_bytes(chars[i]))
            if (chars.substr(i, point_bytes(chars[i])) == point) return true;
        return false;
    };
    while (sides.left && !text.empty() && stripped(text.substr(0, point_bytes(text[0]))))
        text.remove_prefix(point_bytes(text[0]));
    while (sides.right && !text.empty()) {
        const size_t last = point_before(text, text.size());
        if (!stripped(text.substr(last))) break;
        text = text.substr(0, last);
    }
    return text;
}

}  // namespace dslaunch::text::jinja
