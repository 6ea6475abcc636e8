#include "text/chat_template/filters/filters.h"
#include "text/chat_template/objects/attributes.h"
#include "text/chat_template/objects/slices.h"
#include "text/chat_template/values/arithmetic.h"
#include "text/chat_template/values/compare.h"
#include "text/chat_template/values/letters.h"
#include "text/chat_template/values/printing.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <utility>

namespace dslaunch::text::jinja {
namespace {

bool is_flag_on(const Value* flag) {
    return flag != nullptr && is_true(*flag);
}

bool is_set(const Value* value) {
    return value != nullptr && !value->is(Kind::kNone);
}

Value without_case(Runtime& runtime, const Value& value, bool with_case) {
    if (with_case || !value.is(Kind::kText)) return value;
    return new_text(&runtime.meter(), lower_text(value.text()));
}

using Keyed = std::pair<Value, Value>;  // what is sorted by, and the element

Values sorted(Runtime& runtime, std::vector<Keyed> keyed, bool is_reverse) {
    const auto less = [&](const Keyed& a, const Keyed& b) {
        return order_of(runtime.meter(), a.first, b.first) == std::partial_ordering::less;
    };
    if (is_reverse) {
        std::stable_sort(keyed.begin(), keyed.end(),
                         [&](const Keyed& a, const Keyed& b) { return less(b, a); });
    } else {
        std::stable_sort(keyed.begin(), keyed.end(), less);
    }
    Values items;
    items.reserve(keyed.size());
    for (Keyed& one : keyed) items.push_back(std::move(one.second));
    return items;
}

// Each comma of the attribute parts one key from the next.
std::vector<Values> paths_of(Runtime& runtime, const Value* attribute) {
    if (!is_set(attribute)) return {Values{}};
    if (!attribute->is(Kind::kText)) return {path_of(runtime, *attribute)};
    std::vector<Values> paths;
    const std::string& text = attribute->text();
    for (size_t begin = 0; begin <= text.size();) {
        const size_t end = std::min(text.find(',', begin), text.size());
        paths.push_back(
            path_of(runtime, new_text(&runtime.meter(), text.substr(begin, end - begin))));
        begin = end + 1;
    }
    return paths;
}

Value sort_filter(Runtime& runtime, const Value& input, const Arguments& arguments) {
    const auto bound = bind("sort", arguments, {"reverse", "case_sensitive", "attribute"}, 0);
    const std::vector<Values> paths = paths_of(runtime, bound[2]);
    std::vector<Keyed> keyed;
    for (const Value& item : all_of(runtime.meter(), input)) {
        Values keys;
        for (const Values& path : paths)
            keys.push_back(
                without_case(runtime, follow_path(runtime, item, path), is_flag_on(bound[1])));
        keyed.emplace_back(new_list(&runtime.meter(), std::move(keys)), item);
    }
    return new_list(&runtime.meter(), sorted(runtime, std::move(keyed), is_flag_on(bound[0])));
}

Value dict_sort_filter(Runtime& runtime, const Value& input, const Arguments& arguments) {
    const auto bound = bind("dictsort", arguments, {"case_sensitive", "by", "reverse"}, 0);
    const std::string by = bound[1] == nullptr ? "key" : required_text("dictsort", *bound[1]);
    if (by != "key" && by != "value") throw Fault("dictsort sorts by \"key\" or \"value\"");
    if (!input.is(Kind::kDict)) throw Fault("dictsort needs a dict");
    std::vector<Keyed> keyed;
    for (const auto& [key, value] : input.dict().entries) {
        keyed.emplace_back(without_case(runtime, by == "key" ? key : value, is_flag_on(bound[0])),
                           new_tuple(&runtime.meter(), {key, value}));
    }
    return new_list(&runtime.meter(), sorted(runtime, std::move(keyed), is_flag_on(bound[2])));
}

template <bool kMax>
Value extreme_filter(Runtime& runtime, const Value& input, const Arguments& arguments) {
    const auto bound = bind(kMax ? "max" : "min", arguments, {"case_sensitive", "attribute"}, 0);
    const Values path = bound[1] == nullptr ? Values{} : path_of(runtime, *bound[1]);
    Value best;
    Value best_key;
    bool is_first = true;
    for (const Value& item : all_of(runtime.meter(), input)) {
        Value key = without_case(runtime, follow_path(runtime, item, path), is_flag_on(bound[0]));
        if (!is_first) {
            const auto order = order_of(runtime.meter(), key, best_key);
            if (order != (kMax ? std::partial_ordering::greater : std::partial_ordering::less))
                continue;
        }
        is_first = false;
        best = item;
        best_key = std::move(key);
    }
    return best;
}

Value group_filter(Runtime& runtime, const Value& input, const Arguments& arguments) {
    const auto bound = bind("groupby", arguments, {"attribute", "default", "case_sensitive"}, 1);
    const Values path = path_of(runtime, *bound[0]);
    const Value* fallback = is_set(bound[1]) ? bound[1] : nullptr;
    const auto key_of = [&](const Value& item) {
        return follow_path(runtime, item, path, fallback);
    };
    std::vector<Keyed> keyed;
    for (const Value& item : all_of(runtime.meter(), input))
        keyed.emplace_back(without_case(runtime, key_of(item), is_flag_on(bound[2])), item);
    const Values items = sorted(runtime, std::move(keyed), false);
    Values groups;
    for (size_t begin = 0, end = 0; begin < items.size(); begin = end) {
        const Value key = without_case(runtime, key_of(items[begin]), is_flag_on(bound[2]));
        while (end < items.size() &&
               are_equal(runtime.meter(), key,
                         without_case(runtime, key_of(items[end]), is_flag_on(bound[2]))))
            ++end;
        if (end == begin) ++end;  // a key that does not equal itself
        Values members(items.begin() + long(begin), items.begin() + long(end));
        Value group = new_tuple(&runtime.meter(), {key_of(items[begin]),
                                                   new_list(&runtime.meter(), std::move(members))});
        group.as<Sequence>().is_group = true;
        groups.push_back(std::move(group));
    }
    return new_list(&runtime.meter(), std::move(groups));
}

Value join_filter(Runtime& runtime, const Value& input, const Arguments& arguments) {
    const auto bound = bind("join", arguments, {"d", "attribute"}, 0);
    Meter& meter = runtime.meter();
    const std::string between = bound[0] == nullptr ? "" : str_of(meter, *bound[0]);
    const Values path = is_set(bound[1]) ? path_of(runtime, *bound[1]) : Values{};
    std::string joined;
    bool is_first = true;
    Cursor cursor(meter, input);
    for (Value item; cursor.next(item); is_first = false) {
        if (!is_first) joined += between;
        append_str(meter, joined, follow_path(runtime, item, path));
        meter.step_text(between.size());
        meter.check_bytes(joined.size());
    }
    return new_text(&meter, std::move(joined));
}

Value sum_filter(Runtime& runtime, const Value& input, const Arguments& arguments) {
    const auto bound = bind("sum", arguments, {"attribute", "start"}, 0);
    const Values path = is_set(bound[0]) ? path_of(runtime, *bound[0]) : Values{};
    Value sum = bound[1] == nullptr ? Value::integer(0) : *bound[1];
    if (sum.is(Kind::kText)) throw Fault("sum does not join texts: use join");
    Cursor cursor(runtime.meter(), input);
    for (Value item; cursor.next(item);)
        sum =
            apply_operator(runtime.meter(), Operator::kAdd, sum, follow_path(runtime, item, path));
    return sum;
}

Value first_filter(Runtime& runtime, const Value& input, const Arguments& arguments) {
    static_cast<void>(bind("first", arguments, {}, 0));
    Value first;
    return Cursor(runtime.meter(), input).next(first) ? first : Value();
}

Value last_filter(Runtime& runtime, const Value& input, const Arguments& arguments) {
    static_cast<void>(bind("last", arguments, {}, 0));
    const auto length = length_of(input);
    if (!length)
        throw Fault(
            fmt::format("last cannot go over a value of type {}, which has no "
                        "length: put `list` before it",
                        type_name(input)));
    if (input.is(Kind::kDict) || input.is(Kind::kView)) {
        const Values items = all_of(runtime.meter(), input);
        return items.empty() ? Value() : items.back();
    }
    return element_of(runtime.meter(), input, -1);
}

Value length_filter(Runtime& /*runtime*/, const Value& input, const Arguments& arguments) {
    static_cast<void>(bind("length", arguments, {}, 0));
    const auto length = length_of(input);
    if (!length) throw Fault(fmt::format("a value of type {} has no length", type_name(input)));
    return Value::integer(*length);
}

Value list_filter(Runtime& runtime, const Value& input, const Arguments& arguments) {
    static_cast<void>(bind("list", arguments, {}, 0));
    return new_list(&runtime.meter(), all_of(runtime.meter(), input));
}

Value iterator_over(Runtime& runtime, Values items) {
    const Value list = new_list(&runtime.meter(), std::move(items));
    auto cursor = std::make_shared<Cursor>(runtime.meter(), list);
    return new_iterator(&runtime.meter(), list.depth(),
                        [cursor](Value& item) { return cursor->next(item); });
}

Value reverse_filter(Runtime& runtime, const Value& input, const Arguments& arguments) {
    static_cast<void>(bind("reverse", arguments, {}, 0));
    if (input.is(Kind::kText))
        return slice_of(runtime.meter(), input, Value::none(), Value::none(), Value::integer(-1));
    Values items = all_of(runtime.meter(), input);
    std::reverse(items.begin(), items.end());
    // A list for what Python cannot go over from its end.
    const bool is_list = !length_of(input);
    return is_list ? new_list(&runtime.meter(), std::move(items))
                   : iterator_over(runtime, std::move(items));
}

Value batch_filter(Runtime& runtime, const Value& input, const Arguments& arguments) {
    const auto bound = bind("batch", arguments, {"linecount", "fill_with"}, 1);
    const int64_t per_line = whole_number("batch", bound[0]);
    Values lines;
    Values line;
    for (const Value& item : all_of(runtime.meter(), input)) {
        if (int64_t(line.size()) == per_line) {
            lines.push_back(new_list(&runtime.meter(), std::exchange(line, {})));
        }
        line.push_back(item);
    }
    if (!line.empty()) {
        runtime.meter().check_bytes(size_t(std::max<int64_t>(0, per_line)) * sizeof(Value));
        while (is_set(bound[1]) && int64_t(line.size()) < per_line) {
            runtime.meter().step();
            line.push_back(*bound[1]);
        }
        lines.push_back(new_list(&runtime.meter(), std::move(line)));
    }
    return iterator_over(runtime, std::move(lines));
}

Value slice_filter(Runtime& runtime, const Value& input, const Arguments& arguments) {
    const auto bound = bind("slice", arguments, {"slices", "fill_with"}, 1);
    const int64_t count = whole_number("slice", bound[0]);
    if (count == 0) throw Fault("a division by zero");
    const Values items = all_of(runtime.meter(), input);
    const int64_t per_slice = int64_t(items.size()) / std::max<int64_t>(count, 1);
    const int64_t longer = int64_t(items.size()) % std::max<int64_t>(count, 1);
    Values slices;
    size_t at = 0;
    for (int64_t i = 0; i < count; ++i) {
        runtime.meter().step();
        const size_t length = size_t(per_slice + (i < longer ? 1 : 0));
        Values slice(items.begin() + long(at), items.begin() + long(at + length));
        at += length;
        if (is_set(bound[1]) && i >= longer) slice.push_back(*bound[1]);
        slices.push_back(new_list(&runtime.meter(), std::move(slice)));
    }
    return iterator_over(runtime, std::move(slices));
}

constexpr Filter kListFilters[] = {
    {"batch", batch_filter},       {"count", length_filter},       {"dictsort", dict_sort_filter},
    {"first", first_filter},       {"groupby", group_filter},      {"join", join_filter},
    {"last", last_filter},         {"length", length_filter},      {"list", list_filter},
    {"max", extreme_filter<true>}, {"min", extreme_filter<false>}, {"reverse", reverse_filter},
    {"slice", slice_filter},       {"sort", sort_filter},          {"sum", sum_filter},
};

}  // namespace

std::span<const Filter> list_filters() {
    return kListFilters;
}

}  // namespace dslaunch::text::jinja
