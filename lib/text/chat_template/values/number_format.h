// One value as text by a format: the part of `'%5.1f' % x` and of `'{:>8}'.format(x)` that they
// share.
#pragma once

#include "text/chat_template/values/value.h"

#include <optional>
#include <string>
#include <string_view>

namespace dslaunch::text::jinja {

struct FieldFormat {
    std::string fill = " ";
    char align = '\0';  // '<', '>', '^' or '='; none: by the kind
    char sign = '-';    // '-', '+' or ' '
    bool is_alternate = false;
    bool has_grouping = false;
    char grouping = ',';
    int64_t width_points = 0;
    std::optional<int64_t> precision;
    char type = '\0';
};

// The most that a width or a precision may be.
constexpr int64_t kFieldMax = 100'000;

// The mini-language behind the `:` of a replacement field.
[[nodiscard]] FieldFormat parse_field(std::string_view spec);
// Python's format(VALUE, FIELD). Throws Fault.
[[nodiscard]] std::string format_field(Meter& meter, const FieldFormat& field, const Value& value);

// The digits of a number without its sign. REQUIRES: TYPE is e, E, f, F, g or G, or d, b, o, x, X.
[[nodiscard]] std::string float_digits(double number, char type, int64_t precision,
                                       bool is_alternate);
[[nodiscard]] std::string integer_digits(int64_t number, char type, bool is_alternate);

}  // namespace dslaunch::text::jinja
