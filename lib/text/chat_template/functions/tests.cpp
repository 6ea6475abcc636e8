#include <fmt/format.h>

#include <algorithm>
#include <compare>
#include <iterator>

#include "text/chat_template/functions/functions.h"
#include "text/chat_template/values/arithmetic.h"
#include "text/chat_template/values/compare.h"

namespace dslaunch::text::jinja {
namespace {

// A test. OTHER is the argument of the test, if it has an argument.
struct Test {
    std::string_view name;
    bool (*holds)(Meter& meter, const Value& input, const Value& other) = nullptr;
    bool takes_other = false;
};

template <ValueKind kKind>
bool is_of_kind(Meter& /*meter*/, const Value& input, const Value& /*other*/) {
    return input.is(kKind);
}

template <bool kWanted>
bool is_bool(Meter& /*meter*/, const Value& input, const Value& /*other*/) {
    return input.is(ValueKind::kBool) && (input.integral() != 0) == kWanted;
}

template <bool kWanted>
bool is_equal(Meter& meter, const Value& input, const Value& other) {
    return are_equal(meter, input, other) == kWanted;
}

template <bool (*kHolds)(std::partial_ordering)>
bool is_ordered(Meter& meter, const Value& input, const Value& other) {
    return kHolds(order_of(meter, input, other));
}

bool is_rest(Meter& meter, const Value& input, const Value& divisor, int64_t wanted) {
    const Value rest = apply_operator(meter, Operator::kModulo, input, divisor);
    return are_equal(meter, rest, Value::integer(wanted));
}

constexpr Test kTests[] = {
    {"boolean", is_of_kind<ValueKind::kBool>},
    {"callable",
     [](Meter&, const Value& v, const Value&) {
         return v.is(ValueKind::kFunction) || v.is(ValueKind::kLoop) || v.is(ValueKind::kUndefined);
     }},
    {"defined", [](Meter&, const Value& v, const Value&) { return !v.is(ValueKind::kUndefined); }},
    {"divisibleby", [](Meter& m, const Value& v, const Value& o) { return is_rest(m, v, o, 0); },
     true},
    {"even",
     [](Meter& m, const Value& v, const Value&) { return is_rest(m, v, Value::integer(2), 0); }},
    {"false", is_bool<false>},
    {"float", is_of_kind<ValueKind::kFloat>},
    {"in", [](Meter& m, const Value& v, const Value& o) { return contains(m, o, v); }, true},
    {"integer", [](Meter&, const Value& v,
                   const Value&) { return v.is(ValueKind::kInt) || v.is(ValueKind::kLargeInt); }},
    {"iterable", [](Meter&, const Value& v, const Value&) { return can_iterate(v); }},
    {"mapping", is_of_kind<ValueKind::kDict>},
    {"none", is_of_kind<ValueKind::kNone>},
    {"number", [](Meter&, const Value& v,
                  const Value&) { return v.is_number() || v.is(ValueKind::kLargeInt); }},
    {"odd",
     [](Meter& m, const Value& v, const Value&) { return is_rest(m, v, Value::integer(2), 1); }},
    {"sameas", [](Meter&, const Value& v, const Value& o) { return v.same_as(o); }, true},
    {"sequence",
     [](Meter&, const Value& v, const Value&) { return length_of(v) && !v.is(ValueKind::kView); }},
    {"string", is_of_kind<ValueKind::kText>},
    {"true", is_bool<true>},
    {"undefined", is_of_kind<ValueKind::kUndefined>},
    {"==", is_equal<true>, true},
    {"eq", is_equal<true>, true},
    {"equalto", is_equal<true>, true},
    {"!=", is_equal<false>, true},
    {"ne", is_equal<false>, true},
    {"<", is_ordered<std::is_lt>, true},
    {"lt", is_ordered<std::is_lt>, true},
    {"lessthan", is_ordered<std::is_lt>, true},
    {"<=", is_ordered<std::is_lteq>, true},
    {"le", is_ordered<std::is_lteq>, true},
    {">", is_ordered<std::is_gt>, true},
    {"gt", is_ordered<std::is_gt>, true},
    {"greaterthan", is_ordered<std::is_gt>, true},
    {">=", is_ordered<std::is_gteq>, true},
    {"ge", is_ordered<std::is_gteq>, true},
};

}  // namespace

bool apply_test(Runtime& runtime, std::string_view name, const Value& input,
                const Arguments& arguments) {
    const auto test = std::ranges::find(kTests, name, &Test::name);
    if (test == std::end(kTests)) throw Fault(fmt::format("the test `{}` is not supported", name));
    if (!arguments.named.empty() || arguments.positional.size() != (test->takes_other ? 1u : 0u))
        throw Fault(fmt::format("the test `{}` has the wrong number of arguments", name));
    return test->holds(runtime.meter(), input,
                       test->takes_other ? arguments.positional[0] : Value());
}

}  // namespace dslaunch::text::jinja
