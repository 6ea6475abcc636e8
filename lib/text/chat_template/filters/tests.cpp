#include "text/chat_template/filters/tests.h"

#include "text/chat_template/filters/filters.h"
#include "text/chat_template/objects/methods.h"
#include "text/chat_template/values/arithmetic.h"
#include "text/chat_template/values/compare.h"
#include "text/chat_template/values/printing.h"

#include <compare>

namespace dslaunch::text::jinja {
namespace {

void no_arguments(const Arguments& arguments) {
    static_cast<void>(bind("the test", arguments, {}, 0));
}

const Value& other_of(const Arguments& arguments) {
    return *bind("the test", arguments, {"_other"}, 1)[0];
}

template <Kind kKind>
bool is_of_kind(Runtime& /*runtime*/, const Value& input, const Arguments& arguments) {
    no_arguments(arguments);
    return input.is(kKind);
}

template <bool kWanted>
bool is_bool(Runtime& /*runtime*/, const Value& input, const Arguments& arguments) {
    no_arguments(arguments);
    return input.is(Kind::kBool) && (input.integral() != 0) == kWanted;
}

bool is_defined(Runtime& /*runtime*/, const Value& input, const Arguments& arguments) {
    no_arguments(arguments);
    return !input.is(Kind::kUndefined);
}

bool is_number_value(Runtime& /*runtime*/, const Value& input, const Arguments& arguments) {
    no_arguments(arguments);
    return input.is_number() || input.is(Kind::kLargeInt);
}

bool is_whole(Runtime& /*runtime*/, const Value& input, const Arguments& arguments) {
    no_arguments(arguments);
    return input.is(Kind::kInt) || input.is(Kind::kLargeInt);
}

bool is_sequence_value(Runtime& /*runtime*/, const Value& input, const Arguments& arguments) {
    no_arguments(arguments);
    return length_of(input).has_value() && !input.is(Kind::kView);
}

bool is_iterable(Runtime& /*runtime*/, const Value& input, const Arguments& arguments) {
    no_arguments(arguments);
    return can_iterate(input) || input.is(Kind::kLoop);
}

bool is_callable(Runtime& /*runtime*/, const Value& input, const Arguments& arguments) {
    no_arguments(arguments);
    return input.is(Kind::kFunction) || input.is(Kind::kLoop) || input.is(Kind::kUndefined);
}

bool is_escaped(Runtime& /*runtime*/, const Value& input, const Arguments& arguments) {
    no_arguments(arguments);
    return input.is(Kind::kText) && input.text_object().is_safe;
}

bool is_same(Runtime& /*runtime*/, const Value& input, const Arguments& arguments) {
    return input.same_as(other_of(arguments));
}

bool is_in(Runtime& runtime, const Value& input, const Arguments& arguments) {
    return contains(runtime.meter(), other_of(arguments), input);
}

template <bool kWanted>
bool is_equal(Runtime& runtime, const Value& input, const Arguments& arguments) {
    return are_equal(runtime.meter(), input, other_of(arguments)) == kWanted;
}

template <bool (*kHolds)(std::partial_ordering)>
bool is_ordered(Runtime& runtime, const Value& input, const Arguments& arguments) {
    return kHolds(order_of(runtime.meter(), input, other_of(arguments)));
}

bool is_rest(Runtime& runtime, const Value& input, const Value& by, int64_t rest) {
    const Value left = apply_operator(runtime.meter(), Operator::kModulo, input, by);
    return are_equal(runtime.meter(), left, Value::integer(rest));
}

bool is_odd(Runtime& runtime, const Value& input, const Arguments& arguments) {
    no_arguments(arguments);
    return is_rest(runtime, input, Value::integer(2), 1);
}

bool is_even(Runtime& runtime, const Value& input, const Arguments& arguments) {
    no_arguments(arguments);
    return is_rest(runtime, input, Value::integer(2), 0);
}

bool is_divisible(Runtime& runtime, const Value& input, const Arguments& arguments) {
    return is_rest(runtime, input, *bind("divisibleby", arguments, {"num"}, 1)[0], 0);
}

template <bool kUpper>
bool is_cased(Runtime& runtime, const Value& input, const Arguments& arguments) {
    no_arguments(arguments);
    const Value text = new_text(&runtime.meter(), str_of(runtime.meter(), input));
    return is_true(find_method(text, kUpper ? "isupper" : "islower")->run(runtime, text, {}));
}

bool is_a_filter(Runtime& /*runtime*/, const Value& input, const Arguments& arguments) {
    no_arguments(arguments);
    require_key(input);
    return input.is(Kind::kText) && is_filter_name(input.text());
}

bool is_a_test(Runtime& /*runtime*/, const Value& input, const Arguments& arguments) {
    no_arguments(arguments);
    require_key(input);
    return input.is(Kind::kText) && is_test_name(input.text());
}

struct Test {
    std::string_view name;
    TestFunction run;
};
constexpr Test kTests[] = {
    {"!=", is_equal<false>},
    {"<", is_ordered<std::is_lt>},
    {"<=", is_ordered<std::is_lteq>},
    {"==", is_equal<true>},
    {">", is_ordered<std::is_gt>},
    {">=", is_ordered<std::is_gteq>},
    {"boolean", is_of_kind<Kind::kBool>},
    {"callable", is_callable},
    {"defined", is_defined},
    {"divisibleby", is_divisible},
    {"eq", is_equal<true>},
    {"equalto", is_equal<true>},
    {"escaped", is_escaped},
    {"even", is_even},
    {"false", is_bool<false>},
    {"filter", is_a_filter},
    {"float", is_of_kind<Kind::kFloat>},
    {"ge", is_ordered<std::is_gteq>},
    {"greaterthan", is_ordered<std::is_gt>},
    {"gt", is_ordered<std::is_gt>},
    {"in", is_in},
    {"integer", is_whole},
    {"iterable", is_iterable},
    {"le", is_ordered<std::is_lteq>},
    {"lessthan", is_ordered<std::is_lt>},
    {"lower", is_cased<false>},
    {"lt", is_ordered<std::is_lt>},
    {"mapping", is_of_kind<Kind::kDict>},
    {"ne", is_equal<false>},
    {"none", is_of_kind<Kind::kNone>},
    {"number", is_number_value},
    {"odd", is_odd},
    {"sameas", is_same},
    {"sequence", is_sequence_value},
    {"string", is_of_kind<Kind::kText>},
    {"test", is_a_test},
    {"true", is_bool<true>},
    {"undefined", is_of_kind<Kind::kUndefined>},
    {"upper", is_cased<true>},
};

}  // namespace

TestFunction find_test(std::string_view name) {
    for (const Test& test : kTests)
        if (test.name == name) return test.run;
    return nullptr;
}

bool is_test_name(std::string_view name) {
    return find_test(name) != nullptr;
}

}  // namespace dslaunch::text::jinja
