#include "text/chat_template/filters/number_text.h"

#include "text/chat_template/values/letters.h"
#include "text/chat_template/values/limits.h"

#include "base/text.h"

#include <charconv>
#include <cmath>
#include <limits>
#include <string>

namespace dslaunch::text::jinja {
namespace {

// Without the `_` between digits; nothing when one stands elsewhere.
std::optional<std::string> without_underscores(std::string_view text) {
    std::string digits;
    const auto is_digit_at = [&](size_t i) {
        return i < text.size() && ((text[i] >= '0' && text[i] <= '9') ||
                                   ((text[i] | 0x20) >= 'a' && (text[i] | 0x20) <= 'z'));
    };
    for (size_t i = 0; i < text.size(); ++i) {
        if (text[i] != '_') {
            digits += text[i];
        } else if (i == 0 || !is_digit_at(i - 1) || !is_digit_at(i + 1)) {
            return std::nullopt;
        }
    }
    return digits;
}

// The base that a prefix of TEXT says, 0 without one.
int64_t base_of_prefix(std::string_view text) {
    if (text.size() < 2 || text[0] != '0') return 0;
    const char letter = char(text[1] | 0x20);
    return letter == 'x' ? 16 : letter == 'o' ? 8 : letter == 'b' ? 2 : 0;
}

}  // namespace

std::optional<Value> integer_of_text(std::string_view text, int64_t base) {
    text = strip_blanks(text);
    const bool is_negative = text.starts_with('-');
    if (is_negative || text.starts_with('+')) text.remove_prefix(1);
    if (base != 0 && (base < 2 || base > 36)) return std::nullopt;
    const int64_t of_prefix = base_of_prefix(text);
    if (of_prefix != 0 && (base == 0 || base == of_prefix)) {
        base = of_prefix;
        text.remove_prefix(2);
        if (text.starts_with('_')) text.remove_prefix(1);
    }
    if (base == 0) {
        base = 10;
        if (text.starts_with('0') && text.find_first_not_of("0_") != std::string_view::npos)
            return std::nullopt;
    }
    const auto digits = without_underscores(text);
    if (!digits || digits->empty() || digits->starts_with('-')) return std::nullopt;
    const std::string signed_digits = (is_negative ? "-" : "") + *digits;
    int64_t number = 0;
    const char* end = signed_digits.data() + signed_digits.size();
    const auto read = std::from_chars(signed_digits.data(), end, number, int(base));
    if (read.ptr != end) return std::nullopt;
    if (read.ec == std::errc()) return Value::integer(number);
    if (base == 10) return new_integer(nullptr, signed_digits);
    throw Fault("a whole number does not fit 64 bits");
}

std::optional<double> float_of_text(std::string_view text) {
    text = strip_blanks(text);
    const bool is_negative = text.starts_with('-');
    if (is_negative || text.starts_with('+')) text.remove_prefix(1);
    const double sign = is_negative ? -1.0 : 1.0;
    const std::string small = lower(text);
    if (small == "inf" || small == "infinity")
        return sign * std::numeric_limits<double>::infinity();
    if (small == "nan") return std::numeric_limits<double>::quiet_NaN();
    const auto digits = without_underscores(text);
    if (!digits || digits->empty()) return std::nullopt;
    if (!is_digit((*digits)[0]) && (*digits)[0] != '.') return std::nullopt;
    double number = 0.0;
    const char* end = digits->data() + digits->size();
    const auto read = std::from_chars(digits->data(), end, number);
    if (read.ptr != end) return std::nullopt;
    if (read.ec == std::errc::result_out_of_range) number = std::strtod(digits->c_str(), nullptr);
    if (read.ec == std::errc::invalid_argument) return std::nullopt;
    return sign * number;
}

}  // namespace dslaunch::text::jinja
