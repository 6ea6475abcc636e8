#include "text/chat_template/values/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace dslaunch::text::jinja {
namespace {

// Compares a 64-bit number with a float, without rounding.
std::partial_ordering order_mixed(int64_t a, double b) {
    if (std::isnan(b)) return std::partial_ordering::unordered;
    if (b >= 9223372036854775808.0) return std::partial_ordering::less;
    if (b < -9223372036854775808.0) return std::partial_ordering::greater;
    const double whole = std::trunc(b);
    if (a != int64_t(whole)) return a <=> int64_t(whole);
    return 0.0 <=> b - whole;
}

std::partial_ordering order_numbers(const Value& a, const Value& b) {
    if (a.is_integral() && b.is_integral()) return a.integral() <=> b.integral();
    if (a.is_integral()) return order_mixed(a.integral(), b.as_double());
    if (b.is_integral()) return 0 <=> order_mixed(b.integral(), a.as_double());
    return a.as_double() <=> b.as_double();
}

bool equal_items(Meter& meter, const Values& a, const Values& b) {
    if (a.size() != b.size()) return false;
    for (size_t i = 0; i < a.size(); ++i)
        if (!are_equal(meter, a[i], b[i])) return false;
    return true;
}

bool equal_dicts(Meter& meter, const Dict& a, const Dict& b) {
    if (a.entries.size() != b.entries.size()) return false;
    for (const auto& [key, value] : a.entries) {
        const Value* other = find_key(meter, b, key);
        if (other == nullptr || !are_equal(meter, value, *other)) return false;
    }
    return true;
}

void require_key(const Value& key) {
    if (!can_be_key(key))
        throw Fault(fmt::format("a value of type {} cannot be a key of a dict", type_name(key)));
}

}  // namespace

bool is_true(const Value& value) {
    switch (value.kind()) {
        case ValueKind::kNone:
            return false;
        case ValueKind::kBool:
        case ValueKind::kInt:
            return value.integral() != 0;
        case ValueKind::kFloat:
            return value.as_double() != 0.0;
        default:
            return length_of(value).value_or(1) > 0;
    }
}

bool are_equal(Meter& meter, const Value& a, const Value& b) {
    meter.step();
    // In Python, a NaN in a list equals itself. This is ignored here, because NaN does not come
    // from JSON.
    if (a.is_number() && b.is_number())
        return order_numbers(a, b) == std::partial_ordering::equivalent;
    for (const auto& [one, other] : {std::pair(&a, &b), std::pair(&b, &a)})
        if (one->is(ValueKind::kLargeInt) && other->is(ValueKind::kFloat))
            throw Fault("comparing a whole number over 64 bits with a float is not supported");
    if (a.kind() != b.kind()) return false;
    if (a.object() != nullptr && a.object() == b.object()) return true;
    switch (a.kind()) {
        case ValueKind::kUndefined:
        case ValueKind::kNone:
            return true;
        case ValueKind::kLargeInt:
        case ValueKind::kText:
            meter.step_text(std::min(a.text().size(), b.text().size()));
            return a.text() == b.text();
        case ValueKind::kList:
        case ValueKind::kTuple:
        case ValueKind::kRange:
            return equal_items(meter, a.items(), b.items());
        case ValueKind::kView:
            throw Fault("views of dicts cannot be compared: put the filter `list` after them");
        case ValueKind::kDict:
            return equal_dicts(meter, a.dict(), b.dict());
        default:
            return false;
    }
}

std::partial_ordering order_of(Meter& meter, const Value& a, const Value& b) {
    meter.step();
    if (a.is_number() && b.is_number()) return order_numbers(a, b);
    if (a.is(ValueKind::kText) && b.is(ValueKind::kText)) {
        meter.step_text(std::min(a.text().size(), b.text().size()));
        return a.text().compare(b.text()) <=> 0;
    }
    if (a.is_sequence() && a.kind() == b.kind()) {
        const size_t shared = std::min(a.items().size(), b.items().size());
        for (size_t i = 0; i < shared; ++i)
            if (!are_equal(meter, a.items()[i], b.items()[i]))
                return order_of(meter, a.items()[i], b.items()[i]);
        return a.items().size() <=> b.items().size();
    }
    for (const Value* value : {&a, &b}) {
        if (value->is(ValueKind::kLargeInt))
            throw Fault("ordering whole numbers over 64 bits is not supported");
        if (const std::string name = value->undefined_name(); !name.empty())
            throw Fault(fmt::format("'{}' is undefined", name));
    }
    throw Fault(
        fmt::format("values of the types {} and {} cannot be ordered", type_name(a), type_name(b)));
}

bool contains(Meter& meter, const Value& haystack, const Value& needle) {
    if (haystack.is(ValueKind::kText)) {
        if (!needle.is(ValueKind::kText))
            throw Fault(fmt::format(
                "`in` can search a string only for a string, not for a value of type {}",
                type_name(needle)));
        meter.step_text(haystack.text().size());
        return haystack.text().find(needle.text()) != std::string::npos;
    }
    if (haystack.is(ValueKind::kDict)) return find_key(meter, haystack.dict(), needle) != nullptr;
    if (!can_iterate(haystack))
        throw Fault(fmt::format("`in` cannot search a value of type {}", type_name(haystack)));
    Cursor cursor(meter, haystack);
    for (Value item; cursor.next(item);)
        if (are_equal(meter, item, needle)) return true;
    return false;
}

bool can_be_key(const Value& key) {
    if (key.is(ValueKind::kTuple)) return std::ranges::all_of(key.items(), can_be_key);
    return !key.is(ValueKind::kList) && !key.is(ValueKind::kDict) && !key.is(ValueKind::kView);
}

const Value* find_key(Meter& meter, const Dict& dict, const Value& key) {
    require_key(key);
    meter.step_items(dict.entries.size());
    if (key.is(ValueKind::kText)) return find_key(dict, key.text());
    for (const auto& [other, value] : dict.entries)
        if (are_equal(meter, other, key)) return &value;
    return nullptr;
}

const Value* find_key(const Dict& dict, std::string_view key) {
    for (const auto& [other, value] : dict.entries)
        if (other.is(ValueKind::kText) && other.text() == key) return &value;
    return nullptr;
}

void put_entry(Meter& meter, std::vector<Entry>& entries, Value key, Value value) {
    require_key(key);
    meter.step_items(entries.size());
    for (auto& [other, held] : entries) {
        if (!are_equal(meter, other, key)) continue;
        held = std::move(value);
        return;
    }
    if ((entries.size() & 1023) == 0) meter.check_bytes(entries.size() * sizeof(Entry));
    entries.emplace_back(std::move(key), std::move(value));
}

}  // namespace dslaunch::text::jinja
