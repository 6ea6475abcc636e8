#include "text/chat_template/values/number_format.h"

#include "text/chat_template/values/letters.h"
#include "text/chat_template/values/points.h"
#include "text/chat_template/values/printing.h"

#include "base/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace dslaunch::text::jinja {
namespace {

constexpr std::string_view kAligns = "<>^=";

int64_t take_field_number(std::string_view spec, size_t& at) {
    int64_t number = 0;
    for (; at < spec.size() && is_digit(spec[at]); ++at) {
        number = number * 10 + (spec[at] - '0');
        if (number > kFieldMax)
            throw Fault(fmt::format("a format asks for more than {} characters", kFieldMax));
    }
    return number;
}

std::string grouped(std::string digits, char grouping, size_t every) {
    const size_t whole = std::min(digits.find_first_of(".eE%"), digits.size());
    for (size_t at = whole; at > every; at -= every) digits.insert(at - every, 1, grouping);
    return digits;
}

std::string padded(const FieldFormat& field, const std::string& sign, const std::string& body,
                   char align) {
    const int64_t length = count_points(sign) + count_points(body);
    const int64_t missing = std::max<int64_t>(0, field.width_points - length);
    const auto fill = [&](int64_t count) {
        std::string text;
        for (int64_t i = 0; i < count; ++i) text += field.fill;
        return text;
    };
    switch (align) {
        case '<':
            return sign + body + fill(missing);
        case '^':
            return fill(missing / 2) + sign + body + fill(missing - missing / 2);
        case '=':
            return sign + fill(missing) + body;
        default:
            return fill(missing) + sign + body;
    }
}

std::string sign_text(bool is_negative, char sign) {
    if (is_negative) return "-";
    return sign == '-' ? "" : std::string(1, sign);
}

std::string format_integer(const FieldFormat& field, int64_t number, char type) {
    if (field.precision) throw Fault("a whole number is formatted with a precision");
    std::string digits;
    if (type == 'c') {
        if (number < 0 || number > 0x10FFFF || (number >= 0xD800 && number <= 0xDFFF))
            throw Fault(fmt::format("{} is no character", number));
        append_point(digits, uint32_t(number));
        return padded(field, "", digits, field.align == '\0' ? '<' : field.align);
    }
    digits = integer_digits(number, type == 'n' ? 'd' : type, false);
    if (field.has_grouping) digits = grouped(digits, field.grouping, type == 'd' ? 3 : 4);
    std::string sign = sign_text(number < 0, field.sign);
    if (field.is_alternate && type != 'd' && type != 'n') sign += std::string("0") + type;
    return padded(field, sign, digits, field.align == '\0' ? '>' : field.align);
}

std::string format_float(const FieldFormat& field, double number) {
    const bool is_negative = std::signbit(number) && !std::isnan(number);
    const double size = std::fabs(number);
    std::string digits;
    const char type = field.type;
    if (type == '\0' && !field.precision) {
        digits = float_repr(size);
    } else if (type == '\0') {
        // As g, with a digit behind the point.
        digits = float_digits(size, 'g', std::max<int64_t>(*field.precision, 1), false);
        if (digits.find_first_of(".en") == std::string::npos) digits += ".0";
    } else if (type == '%') {
        digits =
            float_digits(size * 100, 'f', field.precision.value_or(6), field.is_alternate) + "%";
    } else {
        digits = float_digits(size, type == 'n' ? 'g' : type, field.precision.value_or(6),
                              field.is_alternate);
    }
    if (field.has_grouping) digits = grouped(digits, field.grouping, 3);
    return padded(field, sign_text(is_negative, field.sign), digits,
                  field.align == '\0' ? '>' : field.align);
}

std::string format_text(const FieldFormat& field, std::string_view text) {
    if (field.sign != '-' || field.is_alternate || field.has_grouping || field.align == '=')
        throw Fault("a text is formatted as if it were a number");
    if (field.type != '\0' && field.type != 's')
        throw Fault(fmt::format("the format `{}` is not one of a text", field.type));
    if (field.precision) text = text.substr(0, point_offset(text, *field.precision));
    return padded(field, "", std::string(text), field.align == '\0' ? '<' : field.align);
}

}  // namespace

std::string integer_digits(int64_t number, char type, bool is_alternate) {
    const uint64_t size = number < 0 ? uint64_t(0) - uint64_t(number) : uint64_t(number);
    switch (type) {
        case 'b':
            return (is_alternate ? "0b" : "") + fmt::format("{:b}", size);
        case 'o':
            return (is_alternate ? "0o" : "") + fmt::format("{:o}", size);
        case 'x':
            return (is_alternate ? "0x" : "") + fmt::format("{:x}", size);
        case 'X':
            return (is_alternate ? "0X" : "") + fmt::format("{:X}", size);
        default:
            return fmt::format("{}", size);
    }
}

std::string float_digits(double number, char type, int64_t precision, bool is_alternate) {
    const bool is_upper = type == 'E' || type == 'F' || type == 'G';
    if (std::isnan(number)) return is_upper ? "NAN" : "nan";
    if (std::isinf(number)) return is_upper ? "INF" : "inf";
    const char format[] = {'%',
                           is_alternate ? '#' : '.',
                           is_alternate ? '.' : '*',
                           is_alternate ? '*' : type,
                           is_alternate ? type : '\0',
                           '\0'};
    const int length = std::snprintf(nullptr, 0, format, int(precision), number);
    std::string text(size_t(length) + 1, '\0');
    std::snprintf(text.data(), text.size(), format, int(precision), number);
    text.pop_back();
    return text;
}

FieldFormat parse_field(std::string_view spec) {
    FieldFormat field;
    size_t at = 0;
    const auto next = [&](size_t offset = 0) {
        return at + offset < spec.size() ? spec[at + offset] : '\0';
    };
    const auto is_align = [](char c) { return c != '\0' && kAligns.find(c) != kAligns.npos; };
    const size_t first = spec.empty() ? 0 : point_bytes(spec[0]);
    if (first > 0 && is_align(next(first))) {
        field.fill = spec.substr(0, first);
        field.align = spec[first];
        at = first + 1;
    } else if (is_align(next())) {
        field.align = spec[at++];
    }
    if (next() == '+' || next() == '-' || next() == ' ') field.sign = spec[at++];
    if (next() == '#') ++at, field.is_alternate = true;
    if (next() == '0') {
        ++at;
        if (field.align == '\0') field.fill = "0", field.align = '=';
    }
    field.width_points = take_field_number(spec, at);
    if (next() == ',' || next() == '_') field.has_grouping = true, field.grouping = spec[at++];
    if (next() == '.') {
        ++at;
        if (!is_digit(next())) throw Fault("a format has a `.` without a precision behind it");
        field.precision = take_field_number(spec, at);
    }
    if (at < spec.size()) field.type = spec[at++];
    if (at < spec.size()) throw Fault(fmt::format("`{}` is no format", spec));
    return field;
}

std::string format_field(Meter& meter, const FieldFormat& field, const Value& value) {
    meter.step_text(size_t(field.width_points + field.precision.value_or(0)));
    constexpr std::string_view kInteger = "bcdoxXn";
    constexpr std::string_view kFloat = "eEfFgG%n";
    const auto is_of = [&](std::string_view types) { return types.find(field.type) != types.npos; };
    if (value.is(Kind::kText)) {
        FieldFormat text_field = field;
        if (field.fill == "0" && field.align == '=') text_field.align = '<';
        return format_text(text_field, value.text());
    }
    if (value.is(Kind::kBool) && field.type == '\0' && field.width_points == 0)
        return str_of(meter, value);
    if (value.is_integral() && (field.type == '\0' || is_of(kInteger)))
        return format_integer(field, value.integral(), field.type == '\0' ? 'd' : field.type);
    if (value.is_number() && (field.type == '\0' || is_of(kFloat)))
        return format_float(field, value.as_double());
    if (value.is_number()) throw Fault(fmt::format("`{}` is no format of a number", field.type));
    if (value.is(Kind::kLargeInt) && field.type == '\0' && field.width_points == 0)
        return str_of(meter, value);
    if (value.is(Kind::kLargeInt)) throw Fault("a number of the format does not fit 64 bits");
    throw Fault(fmt::format("a value of type {} is formatted", type_name(value)));
}

}  // namespace dslaunch::text::jinja
