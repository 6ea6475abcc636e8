#include "text/chat_template/values/arithmetic.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "text/unicode/code_points.h"

namespace dslaunch::text::jinja {
namespace {

constexpr const char* kOperatorTexts[] = {"+", "-", "*", "/", "//", "%"};

[[noreturn]] void fail_kinds(Operator op, const Value& a, const Value& b) {
    for (const Value* value : {&a, &b}) {
        if (!value->is(ValueKind::kUndefined)) continue;
        const std::string name = value->undefined_name();
        throw Fault(name.empty() ? "an undefined value is used in a calculation"
                                 : fmt::format("'{}' is undefined", name));
    }
    throw Fault(fmt::format("`{}` is not supported between values of the types {} and {}",
                            kOperatorTexts[static_cast<size_t>(op)], type_name(a), type_name(b)));
}

[[noreturn]] void fail_overflow() {
    throw Fault(
        "the result does not fit in 64 bits, and calculating with larger whole numbers is not "
        "supported");
}

int64_t floor_quotient(int64_t a, int64_t b) {
    if (a == INT64_MIN && b == -1) fail_overflow();
    const int64_t quotient = a / b;
    return a % b != 0 && (a < 0) != (b < 0) ? quotient - 1 : quotient;
}

int64_t floor_remainder(int64_t a, int64_t b) {
    if (b == -1) return 0;
    const int64_t rest = a % b;
    return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

Value of_integers(Operator op, int64_t a, int64_t b) {
    int64_t result = 0;
    bool overflows = false;
    if (op >= Operator::kDivide && b == 0) throw Fault("a division by zero");
    switch (op) {
        case Operator::kAdd:
            overflows = __builtin_add_overflow(a, b, &result);
            break;
        case Operator::kSubtract:
            overflows = __builtin_sub_overflow(a, b, &result);
            break;
        case Operator::kMultiply:
            overflows = __builtin_mul_overflow(a, b, &result);
            break;
        case Operator::kDivide:
            return Value::real(double(a) / double(b));
        case Operator::kFloorDivide:
            return Value::integer(floor_quotient(a, b));
        case Operator::kModulo:
            return Value::integer(floor_remainder(a, b));
    }
    if (overflows) fail_overflow();
    return Value::integer(result);
}

Value of_floats(Operator op, double a, double b) {
    switch (op) {
        case Operator::kAdd:
            return Value::real(a + b);
        case Operator::kSubtract:
            return Value::real(a - b);
        case Operator::kMultiply:
            return Value::real(a * b);
        case Operator::kDivide:
            if (b == 0.0) throw Fault("a division by zero");
            return Value::real(a / b);
        default:
            throw Fault("`//` and `%` of floats are not supported");
    }
}

std::string html_escaped(std::string_view text) {
    constexpr std::pair<char, const char*> kReferences[] = {
        {'&', "&amp;"}, {'<', "&lt;"}, {'>', "&gt;"}, {'\'', "&#39;"}, {'"', "&#34;"}};
    std::string out;
    for (const char c : text) {
        const auto found = std::ranges::find(kReferences, c, &std::pair<char, const char*>::first);
        found == std::end(kReferences) ? out += c : out += found->second;
    }
    return out;
}

Value joined_texts(Meter& meter, const Text& a, const Text& b) {
    meter.check_bytes(a.text.size() + b.text.size());
    if (a.is_safe == b.is_safe) return new_text(&meter, a.text + b.text, a.is_safe);
    // Only one of the strings is Markup, that is, safe HTML. As in Python, the other one is
    // escaped.
    return new_text(
        &meter,
        (a.is_safe ? a.text : html_escaped(a.text)) + (b.is_safe ? b.text : html_escaped(b.text)),
        true);
}

Value joined_items(Meter& meter, const Value& a, const Value& b) {
    meter.check_bytes((a.items().size() + b.items().size()) * sizeof(Value));
    Values items = a.items();
    items.insert(items.end(), b.items().begin(), b.items().end());
    return new_sequence(&meter, a.kind(), std::move(items));
}

Value repeated(Meter& meter, const Value& value, int64_t times) {
    const size_t count = times > 0 ? size_t(times) : 0;
    const size_t bytes =
        value.is(ValueKind::kText) ? value.text().size() : value.items().size() * sizeof(Value);
    size_t total = 0;
    if (__builtin_mul_overflow(bytes, count, &total)) total = SIZE_MAX;
    meter.check_bytes(total);
    meter.step_text(total);
    std::string text;
    Values items;
    for (size_t i = 0; i < count && bytes > 0; ++i) {
        if (value.is(ValueKind::kText)) {
            text += value.text();
        } else {
            items.insert(items.end(), value.items().begin(), value.items().end());
        }
    }
    if (value.is(ValueKind::kText))
        return new_text(&meter, std::move(text), value.text_object().is_safe);
    return new_sequence(&meter, value.kind(), std::move(items));
}

bool can_repeat(const Value& value) {
    return value.is(ValueKind::kText) || value.is_sequence();
}

bool is_bound_given(const Value& bound) {
    if (bound.is(ValueKind::kNone)) return false;
    if (bound.is_integral()) return true;
    const std::string name = bound.undefined_name();
    throw Fault(name.empty()
                    ? fmt::format("a slice bound must be a whole number, not a value of type {}",
                                  type_name(bound))
                    : fmt::format("'{}' is undefined", name));
}

struct Stride {
    int64_t start, step, count;
};

// Returns what Python's slice.indices() returns.
Stride stride_of(int64_t length, const Value& start, const Value& stop, const Value& step) {
    int64_t by = is_bound_given(step) ? step.integral() : 1;
    if (by == 0) throw Fault("the step of a slice must not be 0");
    by = std::clamp<int64_t>(by, -INT64_MAX, INT64_MAX);
    const int64_t low = by < 0 ? -1 : 0;
    const int64_t high = by < 0 ? length - 1 : length;
    const auto place = [&](const Value& bound, int64_t fallback) {
        if (!is_bound_given(bound)) return fallback;
        int64_t at = bound.integral();
        if (at < 0) at += length;
        return std::clamp(at, low, high);
    };
    const int64_t from = place(start, by < 0 ? high : low);
    const int64_t to = place(stop, by < 0 ? low : high);
    int64_t count = 0;
    if (by > 0 && from < to) count = (to - from - 1) / by + 1;
    if (by < 0 && to < from) count = (from - to - 1) / -by + 1;
    return {from, by, count};
}

std::string part_of_text(const Text& text, const Stride& stride) {
    if (stride.step == 1) {
        const std::string_view all = text.text;
        if (text.is_ascii())
            return std::string(all.substr(size_t(stride.start), size_t(stride.count)));
        const std::string_view rest = all.substr(point_offset(all, stride.start));
        return std::string(rest.substr(0, point_offset(rest, stride.count)));
    }
    std::vector<size_t> offsets;
    for (size_t i = 0; i < text.text.size(); i += point_bytes(text.text[i])) offsets.push_back(i);
    std::string part;
    for (int64_t i = 0; i < stride.count; ++i) {
        const size_t offset = offsets[size_t(stride.start + i * stride.step)];
        part += text.text.substr(offset, point_bytes(text.text[offset]));
    }
    return part;
}

}  // namespace

Value apply_operator(Meter& meter, Operator op, const Value& a, const Value& b) {
    if (a.is_integral() && b.is_integral()) return of_integers(op, a.integral(), b.integral());
    if (a.is_number() && b.is_number()) return of_floats(op, a.as_double(), b.as_double());
    for (const auto& [one, other] : {std::pair(&a, &b), std::pair(&b, &a)}) {
        if (one->is(ValueKind::kLargeInt) &&
            (other->is_number() || other->is(ValueKind::kLargeInt)))
            fail_overflow();
        if (op == Operator::kMultiply && can_repeat(*one) && other->is_integral())
            return repeated(meter, *one, other->integral());
    }
    if (op != Operator::kAdd || a.kind() != b.kind() || !can_repeat(a)) fail_kinds(op, a, b);
    return a.is(ValueKind::kText) ? joined_texts(meter, a.text_object(), b.text_object())
                                  : joined_items(meter, a, b);
}

Value negated(const Value& value) {
    if (value.is(ValueKind::kFloat)) return Value::real(-value.as_double());
    if (value.is(ValueKind::kLargeInt) || (value.is_integral() && value.integral() == INT64_MIN))
        fail_overflow();
    if (!value.is_integral()) fail_kinds(Operator::kSubtract, Value::integer(0), value);
    return Value::integer(-value.integral());
}

Value slice_of(Meter& meter, const Value& value, const Value& start, const Value& stop,
               const Value& step) {
    if (!value.is(ValueKind::kText) && !value.is_sequence() && !value.is(ValueKind::kRange))
        throw Fault(fmt::format("a value of type {} cannot be sliced", type_name(value)));
    const Stride stride = stride_of(length_of(value).value_or(0), start, stop, step);
    if (value.is(ValueKind::kText)) {
        const Text& text = value.text_object();
        meter.step_text(text.text.size());
        return new_text(&meter, part_of_text(text, stride), text.is_safe);
    }
    Values part;
    part.reserve(size_t(stride.count));
    for (int64_t i = 0; i < stride.count; ++i)
        part.push_back(value.items()[size_t(stride.start + i * stride.step)]);
    return new_sequence(&meter, value.kind(), std::move(part));
}

Value element_of(Meter& meter, const Value& value, int64_t index) {
    const bool is_text = value.is(ValueKind::kText);
    if (!is_text && !value.is_sequence() && !value.is(ValueKind::kRange)) return {};
    const int64_t length = *length_of(value);
    if (index < 0) index += length;
    if (index < 0 || index >= length) return {};
    if (!is_text) return value.items()[size_t(index)];
    meter.step_text(value.text().size());
    return new_text(&meter, part_of_text(value.text_object(), {index, 1, 1}));
}

}  // namespace dslaunch::text::jinja
