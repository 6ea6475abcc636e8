#include "text/chat_template/filters/filters.h"

#include "text/chat_template/filters/number_text.h"
#include "text/chat_template/objects/attributes.h"
#include "text/chat_template/values/arithmetic.h"
#include "text/chat_template/values/compare.h"
#include "text/chat_template/values/number_format.h"
#include "text/chat_template/values/printing.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdlib>

namespace dslaunch::text::jinja {
namespace {

[[noreturn]] void fail_undefined_number(const Value& value) {
    throw Fault(fmt::format("'{}' is undefined and no number", value.undefined_name()));
}

Value integer_of_float(double number) {
    if (!std::isfinite(number)) throw Fault("a float that is not finite is no whole number");
    return new_integer(nullptr, fmt::format("{:.0f}", std::trunc(number)));
}

Value int_filter(Runtime& /*runtime*/, const Value& input, const Arguments& arguments) {
    const auto bound = bind("int", arguments, {"default", "base"}, 0);
    const Value fallback = bound[0] == nullptr ? Value::integer(0) : *bound[0];
    if (input.is_integral()) return Value::integer(input.integral());
    if (input.is(Kind::kLargeInt)) return input;
    if (input.is(Kind::kUndefined)) fail_undefined_number(input);
    std::optional<double> number;
    if (input.is(Kind::kText)) {
        const int64_t base = whole_number("int", bound[1], 10);
        if (auto whole = integer_of_text(input.text(), base)) return *whole;
        number = float_of_text(input.text());
        if (number && std::isinf(*number)) return fallback;
    } else if (input.is(Kind::kFloat)) {
        number = input.as_double();
    }
    return number && !std::isnan(*number) ? integer_of_float(*number) : fallback;
}

Value float_filter(Runtime& /*runtime*/, const Value& input, const Arguments& arguments) {
    const auto bound = bind("float", arguments, {"default"}, 0);
    if (input.is_number()) return Value::real(input.as_double());
    if (input.is(Kind::kLargeInt)) return Value::real(std::strtod(input.text().c_str(), nullptr));
    if (input.is(Kind::kUndefined)) fail_undefined_number(input);
    if (input.is(Kind::kText))
        if (const auto number = float_of_text(input.text())) return Value::real(*number);
    return bound[0] == nullptr ? Value::real(0.0) : *bound[0];
}

Value abs_filter(Runtime& /*runtime*/, const Value& input, const Arguments& arguments) {
    static_cast<void>(bind("abs", arguments, {}, 0));
    if (input.is(Kind::kFloat)) return Value::real(std::fabs(input.as_double()));
    if (input.is(Kind::kLargeInt) && input.text()[0] != '-') return input;
    return input.is_integral() && input.integral() >= 0 ? Value::integer(input.integral())
                                                        : negated(input);
}

// Halves go to the even digit, and the number is rounded as it is stored.
double rounded(double number, int64_t digits) {
    if (!std::isfinite(number) || digits > 330) return number;
    if (digits >= 0) return *float_of_text(float_digits(number, 'f', digits, false));
    if (digits < -310) return std::copysign(0.0, number);
    const double unit = std::pow(10.0, double(-digits));
    return std::nearbyint(number / unit) * unit;
}

Value round_filter(Runtime& runtime, const Value& input, const Arguments& arguments) {
    const auto bound = bind("round", arguments, {"precision", "method"}, 0);
    const int64_t digits = whole_number("round", bound[0]);
    const std::string how = bound[1] == nullptr ? "common" : required_text("round", *bound[1]);
    if (how != "common" && how != "ceil" && how != "floor")
        throw Fault("round has the methods common, ceil and floor");
    if (!input.is_number()) throw Fault("round needs a number");
    if (how == "common") {
        if (!input.is_integral()) return Value::real(rounded(input.as_double(), digits));
        if (digits >= 0) return Value::integer(input.integral());
        throw Fault("round of a whole number to tens is not supported");
    }
    Meter& meter = runtime.meter();
    const Value unit =
        apply_operator(meter, Operator::kPower, Value::integer(10), Value::integer(digits));
    const Value product = apply_operator(meter, Operator::kMultiply, input, unit);
    if (!product.is_number()) throw Fault("round needs a number that has few digits");
    const double scaled = product.as_double();
    const Value whole = integer_of_float(how == "ceil" ? std::ceil(scaled) : std::floor(scaled));
    return apply_operator(meter, Operator::kDivide, whole, unit);
}

Value file_size_filter(Runtime& runtime, const Value& input, const Arguments& arguments) {
    const auto bound = bind("filesizeformat", arguments, {"binary"}, 0);
    const bool binary = bound[0] != nullptr && is_true(*bound[0]);
    const auto number = input.is_number()       ? std::optional(input.as_double())
                        : input.is(Kind::kText) ? float_of_text(input.text())
                                                : std::nullopt;
    if (!number) throw Fault("filesizeformat needs a number");
    const auto text = [&](std::string made) { return new_text(&runtime.meter(), std::move(made)); };
    const double base = binary ? 1024.0 : 1000.0;
    if (*number == 1.0) return text("1 Byte");
    if (*number < base) return text(fmt::format("{} Bytes", int64_t(*number)));
    constexpr std::string_view kPrefixes = "kMGTPEZY";
    double unit = base;
    for (size_t i = 0;; ++i) {
        unit *= base;
        if (*number >= unit && i + 1 < kPrefixes.size()) continue;
        const char letter = binary && i == 0 ? 'K' : kPrefixes[i];
        return text(fmt::format("{} {}{}", float_digits(base * *number / unit, 'f', 1, false),
                                letter, binary ? "iB" : "B"));
    }
}

Value default_filter(Runtime& /*runtime*/, const Value& input, const Arguments& arguments) {
    const auto bound = bind("default", arguments, {"default_value", "boolean"}, 0);
    const bool by_truth = bound[1] != nullptr && is_true(*bound[1]);
    if (!input.is(Kind::kUndefined) && (!by_truth || is_true(input))) return input;
    return bound[0] == nullptr ? new_text(nullptr, "") : *bound[0];
}

Value attr_filter(Runtime& runtime, const Value& input, const Arguments& arguments) {
    const auto bound = bind("attr", arguments, {"name"}, 1);
    const std::string& name = required_text("attr", *bound[0]);
    // A dict's keys are no attributes.
    if (input.is(Kind::kUndefined)) fail_undefined_number(input);
    const Value found = attribute_of(runtime, input, name);
    const bool is_key = input.is(Kind::kDict) && !found.is(Kind::kFunction);
    return is_key || found.is(Kind::kUndefined) ? Value() : found;
}

constexpr Filter kOtherFilters[] = {
    {"abs", abs_filter},
    {"attr", attr_filter},
    {"d", default_filter},
    {"default", default_filter},
    {"filesizeformat", file_size_filter},
    {"float", float_filter},
    {"int", int_filter},
    {"round", round_filter},
};

}  // namespace

FilterFunction find_filter(std::string_view name) {
    for (const auto filters :
         {text_filters(), choice_filters(), list_filters(), std::span<const Filter>(kOtherFilters)})
        for (const Filter& filter : filters)
            if (filter.name == name) return filter.run;
    return nullptr;
}

bool is_filter_name(std::string_view name) {
    return find_filter(name) != nullptr;
}

}  // namespace dslaunch::text::jinja
