#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <iterator>

#include "text/chat_template/functions/functions.h"
#include "text/chat_template/values/arithmetic.h"
#include "text/chat_template/values/compare.h"
#include "text/chat_template/values/json_text.h"
#include "text/chat_template/values/letters.h"
#include "text/chat_template/values/printing.h"
#include "text/unicode/code_points.h"

namespace dslaunch::text::jinja {
namespace {

// Returns VALUE if it is a string, otherwise VALUE converted to a string.
Value soft_text(Runtime& runtime, const Value& value) {
    if (value.is(ValueKind::kText)) return value;
    return new_text(&runtime.meter(), str_of(runtime.meter(), value));
}

// ---- Texts

template <std::string (*kChange)(std::string_view)>
Value cased_filter(Runtime& runtime, const Value& input, const Given& /*given*/) {
    const Value text = soft_text(runtime, input);
    runtime.meter().step_text(text.text().size() * 16);
    return new_text(&runtime.meter(), kChange(text.text()), text.text_object().is_safe);
}

Value trim_filter(Runtime& runtime, const Value& input, const Given& given) {
    const Value text = soft_text(runtime, input);
    runtime.meter().step_text(text.text().size());
    const std::string_view trimmed =
        given.is_set(0) ? strip_points(text.text(), given.text(0), {}) : strip_blanks(text.text());
    if (trimmed.size() == text.text().size()) return text;
    return new_text(&runtime.meter(), std::string(trimmed), text.text_object().is_safe);
}

Value replace_filter(Runtime& runtime, const Value& input, const Given& given) {
    Meter& meter = runtime.meter();
    return new_text(&meter,
                    replaced(meter, str_of(meter, input), str_of(meter, *given[0]),
                             str_of(meter, *given[1]), given.is_set(2) ? given.integer(2) : -1));
}

Value indent_filter(Runtime& runtime, const Value& input, const Given& given) {
    Meter& meter = runtime.meter();
    const std::string& text = required_text("indent", input);
    std::string indention;
    if (given[0] != nullptr && given[0]->is(ValueKind::kText)) {
        indention = given[0]->text();
    } else {
        const int64_t width = std::max<int64_t>(0, given.integer(0, 4));
        meter.check_bytes(size_t(width));
        indention.assign(size_t(width), ' ');
    }
    std::string result = given.is_on(1) ? indention : "";
    bool is_first = true;
    for (const Value& line : split_lines(meter, text + "\n", false)) {
        if (!is_first) result += "\n";
        if (!is_first && (given.is_on(2) || !line.text().empty())) result += indention;
        result += line.text();
        is_first = false;
        meter.step_text(indention.size());
        meter.check_bytes(result.size());
    }
    return new_text(&meter, std::move(result), input.text_object().is_safe);
}

Value format_filter(Runtime& runtime, const Value& input, const Given& given) {
    if (!given.all().named.empty())
        throw Fault("the filter `format` does not support named values");
    return percent_format(runtime, soft_text(runtime, input),
                          new_tuple(&runtime.meter(), given.all().positional));
}

Value string_filter(Runtime& runtime, const Value& input, const Given& /*given*/) {
    return soft_text(runtime, input);
}

Value safe_filter(Runtime& runtime, const Value& input, const Given& /*given*/) {
    return new_text(&runtime.meter(), str_of(runtime.meter(), input), true);
}

// Implements `tojson` as in transformers: its arguments are options of Python's json.dumps.
Value to_json_filter(Runtime& runtime, const Value& input, const Given& given) {
    JsonStyle style;
    style.is_ascii_only = given.is_on(0);
    style.sorts_keys = given.is_on(3);
    if (given[1] != nullptr && given[1]->is(ValueKind::kText)) {
        style.indent = given[1]->text();
    } else if (given.is_set(1)) {
        const int64_t width = std::max<int64_t>(0, given.integer(1));
        if (width > 1000) throw Fault("`tojson` can indent by at most 1000 spaces");
        style.indent = std::string(size_t(width), ' ');
    }
    if (style.indent) style.item_separator = ",";
    if (given.is_set(2)) {
        const Values both = all_of(runtime.meter(), *given[2]);
        if (both.size() != 2) throw Fault("`tojson` needs two separators");
        style.item_separator = required_text("tojson", both[0]);
        style.key_separator = required_text("tojson", both[1]);
    }
    return new_text(&runtime.meter(), json_of(runtime.meter(), style, input));
}

// ---- Numbers

// Returns the number in TEXT as Python's int() or float() reads it, or nothing if TEXT is not a
// number.
std::optional<Value> number_in(std::string_view text, bool is_whole) {
    text = strip_blanks(text);
    std::string plain;  // without the `_` that Python allows between digits
    for (size_t i = 0; i < text.size(); ++i) {
        const bool is_between =
            i > 0 && is_digit(text[i - 1]) && i + 1 < text.size() && is_digit(text[i + 1]);
        if (text[i] != '_' || !is_between) plain += text[i];
    }
    text = plain;
    for (size_t at = 0; at < text.size();)
        if (const char32_t point = next_point(text, at); point >= 0x80 && is_digit_point(point))
            throw Fault("a string with digits other than 0 to 9 cannot be converted to a number");
    const std::string_view all = text;
    if (text.starts_with('-') || text.starts_with('+')) text.remove_prefix(1);
    const bool is_negative = all.starts_with('-');
    if (!text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos && is_whole)
        return new_integer(nullptr, all.starts_with('+') ? text : all);
    double number = 0.0;
    const auto read = std::from_chars(text.data(), text.data() + text.size(), number);
    if (text.starts_with('-') || read.ptr != text.data() + text.size()) return std::nullopt;
    if (read.ec == std::errc::result_out_of_range) {
        number = std::strtod(std::string(text).c_str(), nullptr);  // infinite, or about 0
    } else if (read.ec != std::errc()) {
        return std::nullopt;
    }
    return Value::real(is_negative ? -number : number);
}

Value to_int_filter(Runtime& /*runtime*/, const Value& input, const Given& given) {
    if (input.is_integral()) return Value::integer(input.integral());
    if (input.is(ValueKind::kLargeInt)) return input;
    if (input.is(ValueKind::kUndefined))
        throw Fault(fmt::format("'{}' is undefined and cannot be converted to a number",
                                input.undefined_name()));
    std::optional<Value> number = input;
    if (input.is(ValueKind::kText)) number = number_in(input.text(), true);
    if (number && (number->is(ValueKind::kInt) || number->is(ValueKind::kLargeInt))) return *number;
    if (!number || !number->is(ValueKind::kFloat) || !std::isfinite(number->as_double()))
        return given[0] == nullptr ? Value::integer(0) : *given[0];
    return new_integer(nullptr, fmt::format("{:.0f}", std::trunc(number->as_double())));
}

Value to_float_filter(Runtime& /*runtime*/, const Value& input, const Given& given) {
    if (input.is_number()) return Value::real(input.as_double());
    if (input.is(ValueKind::kLargeInt))
        throw Fault("a whole number over 64 bits cannot be converted to a float");
    if (input.is(ValueKind::kUndefined))
        throw Fault(fmt::format("'{}' is undefined and cannot be converted to a number",
                                input.undefined_name()));
    if (input.is(ValueKind::kText))
        if (const auto number = number_in(input.text(), false)) return *number;
    return given[0] == nullptr ? Value::real(0.0) : *given[0];
}

Value abs_filter(Runtime& /*runtime*/, const Value& input, const Given& /*given*/) {
    if (input.is(ValueKind::kFloat)) return Value::real(std::fabs(input.as_double()));
    return input.is_integral() && input.integral() >= 0 ? Value::integer(input.integral())
                                                        : negated(input);
}

// ---- Any value

Value or_default_filter(Runtime& /*runtime*/, const Value& input, const Given& given) {
    if (!input.is(ValueKind::kUndefined) && (!given.is_on(1) || is_true(input))) return input;
    return given[0] == nullptr ? new_text(nullptr, "") : *given[0];
}

Value length_filter(Runtime& /*runtime*/, const Value& input, const Given& /*given*/) {
    const auto known = length_of(input);
    if (!known) throw Fault(fmt::format("a value of type {} has no length", type_name(input)));
    return Value::integer(*known);
}

// ---- Lists

// Returns the parts of ATTRIBUTE, an argument of a filter. For example, "a.b.0" has three parts.
// Each part is a key or an index.
Values path_of(Runtime& runtime, const Value* attribute) {
    if (attribute == nullptr || attribute->is(ValueKind::kNone)) return {};
    if (!attribute->is(ValueKind::kText)) return {*attribute};
    if (attribute->text().find(',') != std::string::npos)
        throw Fault("an attribute with several names is not supported");
    Values path;
    const std::string_view text = attribute->text();
    for (size_t begin = 0; begin <= text.size();) {
        const size_t end = std::min(text.find('.', begin), text.size());
        const std::string part(text.substr(begin, end - begin));
        const bool is_number = !part.empty() && part.size() < 18 &&
                               part.find_first_not_of("0123456789") == std::string::npos;
        path.push_back(is_number ? Value::integer(std::stoll(part))
                                 : new_text(&runtime.meter(), part));
        begin = end + 1;
    }
    return path;
}

// Follows PATH, starting from the value OF, and returns the value at the end of PATH. If FALLBACK
// is given, it replaces undefined values on the way.
Value follow(Runtime& runtime, Value of, const Values& path, const Value* fallback = nullptr) {
    for (const Value& part : path) {
        of = item_of(runtime, of, part);
        if (fallback != nullptr && of.is(ValueKind::kUndefined)) of = *fallback;
    }
    return of;
}

Value without_case(Runtime& runtime, const Value& value, bool with_case) {
    if (with_case || !value.is(ValueKind::kText)) return value;
    return new_text(&runtime.meter(), lower_text(value.text()));
}

// Returns the values in KEYED, sorted by their keys.
using Keyed = std::pair<Value, Value>;
Value sorted(Runtime& runtime, std::vector<Keyed> keyed, bool is_reverse) {
    std::ranges::stable_sort(keyed, [&](const Keyed& a, const Keyed& b) {
        return std::is_lt(is_reverse ? order_of(runtime.meter(), b.first, a.first)
                                     : order_of(runtime.meter(), a.first, b.first));
    });
    Values items;
    for (Keyed& one : keyed) items.push_back(std::move(one.second));
    return new_list(&runtime.meter(), std::move(items));
}

Value sort_filter(Runtime& runtime, const Value& input, const Given& given) {
    const Values path = path_of(runtime, given[2]);
    std::vector<Keyed> keyed;
    for (const Value& item : all_of(runtime.meter(), input))
        keyed.emplace_back(
            new_list(&runtime.meter(),
                     {without_case(runtime, follow(runtime, item, path), given.is_on(1))}),
            item);
    return sorted(runtime, std::move(keyed), given.is_on(0));
}

Value dict_sort_filter(Runtime& runtime, const Value& input, const Given& given) {
    const std::string by = given[1] == nullptr ? "key" : given.text(1);
    if (by != "key" && by != "value")
        throw Fault("`dictsort` can sort only by \"key\" or \"value\"");
    if (!input.is(ValueKind::kDict)) throw Fault("`dictsort` needs a dict");
    std::vector<Keyed> keyed;
    for (const auto& [key, value] : input.dict().entries)
        keyed.emplace_back(without_case(runtime, by == "key" ? key : value, given.is_on(0)),
                           new_tuple(&runtime.meter(), {key, value}));
    return sorted(runtime, std::move(keyed), given.is_on(2));
}

template <bool kMax>
Value extreme_filter(Runtime& runtime, const Value& input, const Given& given) {
    const Values path = path_of(runtime, given[1]);
    Value best;
    std::optional<Value> best_key;
    for (const Value& item : all_of(runtime.meter(), input)) {
        Value key = without_case(runtime, follow(runtime, item, path), given.is_on(0));
        if (best_key) {
            const auto order = order_of(runtime.meter(), key, *best_key);
            if (kMax ? !std::is_gt(order) : !std::is_lt(order)) continue;
        }
        best = item;
        best_key = std::move(key);
    }
    return best;
}

Value join_filter(Runtime& runtime, const Value& input, const Given& given) {
    Meter& meter = runtime.meter();
    const std::string between = given[0] == nullptr ? "" : str_of(meter, *given[0]);
    const Values path = path_of(runtime, given[1]);
    std::string joined;
    bool is_first = true;
    Cursor cursor(meter, input);
    for (Value item; cursor.next(item); is_first = false) {
        if (!is_first) joined += between;
        append_str(meter, joined, follow(runtime, item, path));
        meter.step_text(between.size());
        meter.check_bytes(joined.size());
    }
    return new_text(&meter, std::move(joined));
}

Value sum_filter(Runtime& runtime, const Value& input, const Given& given) {
    const Values path = path_of(runtime, given[0]);
    Value total = given[1] == nullptr ? Value::integer(0) : *given[1];
    if (total.is(ValueKind::kText)) throw Fault("`sum` cannot join strings: use `join`");
    for (const Value& item : all_of(runtime.meter(), input))
        total = apply_operator(runtime.meter(), Operator::kAdd, total, follow(runtime, item, path));
    return total;
}

Value first_filter(Runtime& runtime, const Value& input, const Given& /*given*/) {
    Value item;
    return Cursor(runtime.meter(), input).next(item) ? item : Value();
}

Value last_filter(Runtime& runtime, const Value& input, const Given& /*given*/) {
    if (!length_of(input))
        throw Fault(fmt::format(
            "`last` cannot read a value of type {}, which has no length: put `list` before it",
            type_name(input)));
    if (!input.is(ValueKind::kDict) && !input.is(ValueKind::kView))
        return element_of(runtime.meter(), input, -1);
    const Values items = all_of(runtime.meter(), input);
    return items.empty() ? Value() : items.back();
}

Value list_filter(Runtime& runtime, const Value& input, const Given& /*given*/) {
    return new_list(&runtime.meter(), all_of(runtime.meter(), input));
}

Value iterator_over(Runtime& runtime, Values items) {
    return new_sequence(&runtime.meter(), ValueKind::kIterator, std::move(items));
}

Value reverse_filter(Runtime& runtime, const Value& input, const Given& /*given*/) {
    if (input.is(ValueKind::kText))
        return slice_of(runtime.meter(), input, Value::none(), Value::none(), Value::integer(-1));
    Values items = all_of(runtime.meter(), input);
    std::ranges::reverse(items);
    // Python cannot iterate an iterator backwards, so Jinja2 first makes a list of it and returns
    // this list.
    return input.is(ValueKind::kIterator) ? new_list(&runtime.meter(), std::move(items))
                                          : iterator_over(runtime, std::move(items));
}

Value items_filter(Runtime& runtime, const Value& input, const Given& /*given*/) {
    if (!input.is(ValueKind::kUndefined) && !input.is(ValueKind::kDict))
        throw Fault(fmt::format("`items` needs a dict, not a value of type {}", type_name(input)));
    Values pairs;
    if (input.is(ValueKind::kDict))
        for (const auto& [key, value] : input.dict().entries)
            pairs.push_back(new_tuple(&runtime.meter(), {key, value}));
    return iterator_over(runtime, std::move(pairs));
}

Value unique_filter(Runtime& runtime, const Value& input, const Given& given) {
    const Values path = path_of(runtime, given[1]);
    Values seen, kept;
    for (const Value& item : all_of(runtime.meter(), input)) {
        Value key = without_case(runtime, follow(runtime, item, path), given.is_on(0));
        if (!can_be_key(key))
            throw Fault(fmt::format("`unique` cannot compare values of type {}", type_name(key)));
        if (std::ranges::any_of(
                seen, [&](const Value& other) { return are_equal(runtime.meter(), other, key); }))
            continue;
        seen.push_back(std::move(key));
        kept.push_back(item);
    }
    return iterator_over(runtime, std::move(kept));
}

// Returns the elements of INPUT, or no elements if INPUT counts as false.
Values elements(Runtime& runtime, const Value& input) {
    return is_true(input) ? all_of(runtime.meter(), input) : Values{};
}

Value map_filter(Runtime& runtime, const Value& input, const Given& given) {
    Arguments rest = given.all();
    Values made;
    if (!rest.positional.empty()) {
        const std::string name = required_text("map", rest.positional[0]);
        rest.positional.erase(rest.positional.begin());
        for (const Value& item : elements(runtime, input))
            made.push_back(apply_filter(runtime, name, item, rest));
        return iterator_over(runtime, std::move(made));
    }
    const Value *attribute = nullptr, *fallback = nullptr;
    for (const auto& [name, value] : rest.named) {
        if (name != "attribute" && name != "default")
            throw Fault(fmt::format("`map` has no argument `{}`", name));
        (name == "default" ? fallback : attribute) = &value;
    }
    if (attribute == nullptr) throw Fault("`map` needs the argument `attribute`");
    if (fallback != nullptr && fallback->is(ValueKind::kNone)) fallback = nullptr;
    const Values path = path_of(runtime, attribute);
    for (const Value& item : elements(runtime, input))
        made.push_back(follow(runtime, item, path, fallback));
    return iterator_over(runtime, std::move(made));
}

// Keeps the elements for which the test gives kWanted. If kOfAttribute is true, the first argument
// names the attribute to test, and the second argument is the test.
template <bool kWanted, bool kOfAttribute>
Value choose_filter(Runtime& runtime, const Value& input, const Given& given) {
    constexpr size_t kNameAt = kOfAttribute ? 1 : 0;
    Arguments rest = given.all();
    Values& by_place = rest.positional;
    if (by_place.size() < kNameAt) throw Fault("the filter needs the name of an attribute");
    const Values path = kOfAttribute ? path_of(runtime, &by_place[0]) : Values{};
    const bool has_test = by_place.size() > kNameAt;
    const std::string name = has_test ? required_text(given.who(), by_place[kNameAt]) : "";
    by_place.erase(by_place.begin(), by_place.begin() + long(kNameAt + has_test));
    Values kept;
    for (const Value& item : elements(runtime, input)) {
        const Value tested = follow(runtime, item, path);
        if ((has_test ? apply_test(runtime, name, tested, rest) : is_true(tested)) == kWanted)
            kept.push_back(item);
    }
    return iterator_over(runtime, std::move(kept));
}

constexpr Native kFilters[] = {
    {"abs", abs_filter},
    {"capitalize", cased_filter<capitalized_text>},
    {"count", length_filter},
    {"d", or_default_filter, {"default_value", "boolean"}},
    {"default", or_default_filter, {"default_value", "boolean"}},
    {"dictsort", dict_sort_filter, {"case_sensitive", "by", "reverse"}},
    {"first", first_filter},
    {"float", to_float_filter, {"default"}},
    {"format", format_filter, {"*"}},
    {"indent", indent_filter, {"width", "first", "blank"}},
    {"int", to_int_filter, {"default"}},
    {"items", items_filter},
    {"join", join_filter, {"d", "attribute"}},
    {"last", last_filter},
    {"length", length_filter},
    {"list", list_filter},
    {"lower", cased_filter<lower_text>},
    {"map", map_filter, {"*"}},
    {"max", extreme_filter<true>, {"case_sensitive", "attribute"}},
    {"min", extreme_filter<false>, {"case_sensitive", "attribute"}},
    {"reject", choose_filter<false, false>, {"*"}},
    {"rejectattr", choose_filter<false, true>, {"*"}},
    {"replace", replace_filter, {"old", "new", "count"}, 2},
    {"reverse", reverse_filter},
    {"safe", safe_filter},
    {"select", choose_filter<true, false>, {"*"}},
    {"selectattr", choose_filter<true, true>, {"*"}},
    {"sort", sort_filter, {"reverse", "case_sensitive", "attribute"}},
    {"string", string_filter},
    {"sum", sum_filter, {"attribute", "start"}},
    {"title", cased_filter<title_words>},
    {"tojson", to_json_filter, {"ensure_ascii", "indent", "separators", "sort_keys"}},
    {"trim", trim_filter, {"chars"}},
    {"unique", unique_filter, {"case_sensitive", "attribute"}},
    {"upper", cased_filter<upper_text>},
};

}  // namespace

Value apply_filter(Runtime& runtime, std::string_view name, const Value& input,
                   const Arguments& arguments) {
    const Native* filter = find_native(kFilters, name);
    if (filter == nullptr) throw Fault(fmt::format("the filter `{}` is not supported", name));
    return call_native(runtime, *filter, input, arguments);
}

}  // namespace dslaunch::text::jinja
