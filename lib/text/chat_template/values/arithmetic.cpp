#include "text/chat_template/values/arithmetic.h"

#include "text/chat_template/values/percent_format.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <utility>

namespace dslaunch::text::jinja {
namespace {

[[noreturn]] void fail_kinds(Operator op, const Value& a, const Value& b) {
    for (const Value* value : {&a, &b}) {
        if (!value->is(Kind::kUndefined)) continue;
        const std::string name = value->undefined_name();
        throw Fault(name.empty() ? "an undefined value is calculated with"
                                 : fmt::format("'{}' is undefined", name));
    }
    throw Fault(fmt::format("`{}` does not work on values of the types {} and {}",
                            operator_text(op), type_name(a), type_name(b)));
}

[[noreturn]] void fail_overflow() {
    throw Fault("a whole number does not fit 64 bits, and nothing larger is calculated here");
}

[[noreturn]] void fail_zero() {
    throw Fault("a division by zero");
}

__extension__ using Wide = __int128;

// A sum, difference or product of two numbers of 64 bits.
Value whole_value(Wide number) {
    if (number >= INT64_MIN && number <= INT64_MAX) return Value::integer(int64_t(number));
    std::string digits;
    const bool is_negative = number < 0;
    for (; number != 0; number /= 10) digits += char('0' + std::abs(int(number % 10)));
    if (is_negative) digits += '-';
    std::reverse(digits.begin(), digits.end());
    return new_integer(nullptr, digits);
}

int64_t floor_quotient(int64_t a, int64_t b) {
    if (b == 0) fail_zero();
    if (a == INT64_MIN && b == -1) fail_overflow();
    const int64_t quotient = a / b;
    return a % b != 0 && (a < 0) != (b < 0) ? quotient - 1 : quotient;
}

int64_t floor_remainder(int64_t a, int64_t b) {
    if (b == 0) fail_zero();
    if (b == -1) return 0;
    const int64_t rest = a % b;
    return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

Value integer_power(int64_t base, int64_t exponent) {
    if (exponent < 0) {
        if (base == 0) fail_zero();
        return Value::real(std::pow(double(base), double(exponent)));
    }
    int64_t result = 1;
    while (exponent > 0) {
        if ((exponent & 1) != 0 && __builtin_mul_overflow(result, base, &result)) fail_overflow();
        exponent >>= 1;
        if (exponent > 0 && __builtin_mul_overflow(base, base, &base)) fail_overflow();
    }
    return Value::integer(result);
}

Value integers(Operator op, int64_t a, int64_t b) {
    switch (op) {
        case Operator::kAdd:
            return whole_value(Wide{a} + b);
        case Operator::kSubtract:
            return whole_value(Wide{a} - b);
        case Operator::kMultiply:
            return whole_value(Wide{a} * b);
        case Operator::kDivide:
            if (b == 0) fail_zero();
            return Value::real(double(a) / double(b));
        case Operator::kFloorDivide:
            return Value::integer(floor_quotient(a, b));
        case Operator::kModulo:
            return Value::integer(floor_remainder(a, b));
        case Operator::kPower:
            break;
    }
    return integer_power(a, b);
}

double float_remainder(double a, double b) {
    if (b == 0.0) fail_zero();
    const double rest = std::fmod(a, b);
    if (rest == 0.0) return std::copysign(0.0, b);
    return (rest < 0.0) != (b < 0.0) ? rest + b : rest;
}

double float_floor_quotient(double a, double b) {
    if (b == 0.0) fail_zero();
    const double quotient = (a - float_remainder(a, b)) / b;
    if (quotient == 0.0) return std::copysign(0.0, a / b);
    const double floor = std::floor(quotient);
    return quotient - floor > 0.5 ? floor + 1.0 : floor;
}

double float_power(double a, double b) {
    if (a == 0.0 && b < 0.0) fail_zero();
    if (a < 0.0 && std::isfinite(a) && std::isfinite(b) && b != std::floor(b))
        throw Fault("a root of a negative number is no real number");
    const double result = std::pow(a, b);
    if (std::isinf(result) && std::isfinite(a) && std::isfinite(b))
        throw Fault("the result of `**` is too large");
    return result;
}

Value floats(Operator op, double a, double b) {
    switch (op) {
        case Operator::kAdd:
            return Value::real(a + b);
        case Operator::kSubtract:
            return Value::real(a - b);
        case Operator::kMultiply:
            return Value::real(a * b);
        case Operator::kDivide:
            if (b == 0.0) fail_zero();
            return Value::real(a / b);
        case Operator::kFloorDivide:
            return Value::real(float_floor_quotient(a, b));
        case Operator::kModulo:
            return Value::real(float_remainder(a, b));
        case Operator::kPower:
            break;
    }
    return Value::real(float_power(a, b));
}

Value joined(Meter& meter, const Value& a, const Value& b) {
    if (a.is(Kind::kText)) {
        const bool a_safe = a.text_object().is_safe;
        const bool b_safe = b.text_object().is_safe;
        meter.check_bytes(a.text().size() + b.text().size());
        if (a_safe == b_safe) return new_text(&meter, a.text() + b.text(), a_safe);
        return new_text(&meter,
                        (a_safe ? a.text() : html_escaped(a.text())) +
                            (b_safe ? b.text() : html_escaped(b.text())),
                        true);
    }
    meter.check_bytes((a.items().size() + b.items().size()) * sizeof(Value));
    Values items = a.items();
    items.insert(items.end(), b.items().begin(), b.items().end());
    return a.is(Kind::kList) ? new_list(&meter, std::move(items))
                             : new_tuple(&meter, std::move(items));
}

Value repeated(Meter& meter, const Value& value, int64_t times) {
    const size_t count = times > 0 ? size_t(times) : 0;
    const auto check = [&](size_t bytes) {
        size_t total = 0;
        if (__builtin_mul_overflow(bytes, count, &total)) total = SIZE_MAX;
        meter.check_bytes(total);
        meter.step_text(total);
    };
    if (value.is(Kind::kText)) {
        const std::string& once = value.text();
        check(once.size());
        std::string text;
        text.reserve(once.size() * count);
        if (!once.empty())
            for (size_t i = 0; i < count; ++i) text += once;
        return new_text(&meter, std::move(text), value.text_object().is_safe);
    }
    const Values& once = value.items();
    check(once.size() * sizeof(Value));
    Values items;
    items.reserve(once.size() * count);
    if (!once.empty())
        for (size_t i = 0; i < count; ++i) items.insert(items.end(), once.begin(), once.end());
    return value.is(Kind::kList) ? new_list(&meter, std::move(items))
                                 : new_tuple(&meter, std::move(items));
}

bool can_repeat(const Value& value) {
    return value.is(Kind::kText) || value.is_sequence();
}

}  // namespace

const char* operator_text(Operator op) {
    switch (op) {
        case Operator::kAdd:
            return "+";
        case Operator::kSubtract:
            return "-";
        case Operator::kMultiply:
            return "*";
        case Operator::kDivide:
            return "/";
        case Operator::kFloorDivide:
            return "//";
        case Operator::kModulo:
            return "%";
        case Operator::kPower:
            return "**";
    }
    return "";
}

Value apply_operator(Meter& meter, Operator op, const Value& a, const Value& b) {
    if (op == Operator::kModulo && a.is(Kind::kText))
        return new_text(&meter, percent_format(meter, a.text(), b), a.text_object().is_safe);
    if (a.is_number() && b.is_number()) {
        return a.is_integral() && b.is_integral() ? integers(op, a.integral(), b.integral())
                                                  : floats(op, a.as_double(), b.as_double());
    }
    for (const auto& [one, other] : {std::pair(&a, &b), std::pair(&b, &a)})
        if (one->is(Kind::kLargeInt) && (other->is_number() || other->is(Kind::kLargeInt)))
            fail_overflow();
    if (op == Operator::kAdd && a.kind() == b.kind() && can_repeat(a)) return joined(meter, a, b);
    if (op == Operator::kMultiply && can_repeat(a) && b.is_integral())
        return repeated(meter, a, b.integral());
    if (op == Operator::kMultiply && can_repeat(b) && a.is_integral())
        return repeated(meter, b, a.integral());
    fail_kinds(op, a, b);
}

Value negated(const Value& value) {
    if (value.is(Kind::kFloat)) return Value::real(-value.as_double());
    if (value.is(Kind::kLargeInt)) {
        const std::string& digits = value.text();
        return new_integer(nullptr, digits[0] == '-' ? digits.substr(1) : "-" + digits);
    }
    if (!value.is_integral()) fail_kinds(Operator::kSubtract, Value::integer(0), value);
    return whole_value(-Wide{value.integral()});
}

Value kept_sign(const Value& value) {
    if (value.is(Kind::kFloat) || value.is(Kind::kLargeInt)) return value;
    if (!value.is_integral()) fail_kinds(Operator::kAdd, Value::integer(0), value);
    return Value::integer(value.integral());
}

std::string html_escaped(std::string_view text) {
    std::string out;
    out.reserve(text.size());
    for (const char c : text) {
        switch (c) {
            case '&':
                out += "&amp;";
                break;
            case '<':
                out += "&lt;";
                break;
            case '>':
                out += "&gt;";
                break;
            case '\'':
                out += "&#39;";
                break;
            case '"':
                out += "&#34;";
                break;
            default:
                out += c;
        }
    }
    return out;
}

}  // namespace dslaunch::text::jinja
