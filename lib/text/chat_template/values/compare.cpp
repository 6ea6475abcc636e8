#include "text/chat_template/values/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace dslaunch::text::jinja {
namespace {

// A 64-bit number against a float, without rounding.
std::partial_ordering order_mixed(int64_t a, double b) {
    if (std::isnan(b)) return std::partial_ordering::unordered;
    if (b >= 9223372036854775808.0) return std::partial_ordering::less;
    if (b < -9223372036854775808.0) return std::partial_ordering::greater;
    const double whole = std::trunc(b);
    if (a != int64_t(whole)) return a <=> int64_t(whole);
    return 0.0 <=> b - whole;
}

std::partial_ordering turned(std::partial_ordering order) {
    if (order == std::partial_ordering::less) return std::partial_ordering::greater;
    if (order == std::partial_ordering::greater) return std::partial_ordering::less;
    return order;
}

// A whole number of any size, or the whole part of a float that has no other.
std::string digits_of(const Value& value) {
    if (value.is(Kind::kLargeInt)) return value.text();
    if (value.is(Kind::kFloat)) return fmt::format("{:.0f}", value.as_double());
    return std::to_string(value.integral());
}

// One of A and B has over 64 bits: the other is nearer to zero, or a whole number.
std::partial_ordering order_large(const Value& a, const Value& b) {
    for (const Value* value : {&a, &b}) {
        if (!value->is(Kind::kFloat) || std::isfinite(value->as_double())) continue;
        if (std::isnan(value->as_double())) return std::partial_ordering::unordered;
        return (value->as_double() > 0) == (value == &a) ? std::partial_ordering::greater
                                                         : std::partial_ordering::less;
    }
    std::string left = digits_of(a), right = digits_of(b);
    const bool is_negative = left.starts_with('-');
    if (is_negative != right.starts_with('-'))
        return is_negative ? std::partial_ordering::less : std::partial_ordering::greater;
    if (is_negative) std::swap(left, right);
    const auto order = left.size() <=> right.size();
    return order != 0 ? order : left.compare(right) <=> 0;
}

bool is_any_number(const Value& value) {
    return value.is_number() || value.is(Kind::kLargeInt);
}

std::partial_ordering order_numbers(const Value& a, const Value& b) {
    if (a.is(Kind::kLargeInt) || b.is(Kind::kLargeInt)) return order_large(a, b);
    if (a.is_integral() && b.is_integral()) return a.integral() <=> b.integral();
    if (a.is_integral()) return order_mixed(a.integral(), b.as_double());
    if (b.is_integral()) return turned(order_mixed(b.integral(), a.as_double()));
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

bool equal_ranges(const Range& a, const Range& b) {
    if (a.length != b.length) return false;
    return a.length == 0 || (a.start == b.start && (a.length == 1 || a.step == b.step));
}

uint64_t step_size(int64_t step) {
    return step < 0 ? uint64_t(0) - uint64_t(step) : uint64_t(step);
}

bool contains_text(Meter& meter, const Value& haystack, const Value& needle) {
    if (!needle.is(Kind::kText)) {
        throw Fault(fmt::format("only a text can be in a text, and not a value of type {}",
                                type_name(needle)));
    }
    meter.step_text(haystack.text().size());
    return haystack.text().find(needle.text()) != std::string::npos;
}

}  // namespace

bool is_true(const Value& value) {
    switch (value.kind()) {
        case Kind::kUndefined:
        case Kind::kNone:
            return false;
        case Kind::kBool:
        case Kind::kInt:
            return value.integral() != 0;
        case Kind::kFloat:
            return value.as_double() != 0.0;
        default: {
            const std::optional<int64_t> length = length_of(value);
            return !length || *length > 0;
        }
    }
}

bool are_equal(Meter& meter, const Value& a, const Value& b) {
    meter.step();
    if (is_any_number(a) && is_any_number(b)) {
        // In a list the same NaN equals itself for Python; NaN does not come from JSON.
        return order_numbers(a, b) == std::partial_ordering::equivalent;
    }
    if (a.kind() != b.kind()) return false;
    if (a.object() != nullptr && a.object() == b.object()) return true;
    switch (a.kind()) {
        case Kind::kUndefined:
        case Kind::kNone:
            return true;
        case Kind::kText:
            meter.step_text(std::min(a.text().size(), b.text().size()));
            return a.text() == b.text();
        case Kind::kList:
        case Kind::kTuple:
            return equal_items(meter, a.items(), b.items());
        case Kind::kDict:
            return equal_dicts(meter, a.dict(), b.dict());
        case Kind::kRange:
            return equal_ranges(a.as<Range>(), b.as<Range>());
        default:
            return false;
    }
}

std::partial_ordering order_of(Meter& meter, const Value& a, const Value& b) {
    meter.step();
    if (is_any_number(a) && is_any_number(b)) return order_numbers(a, b);
    if (a.is(Kind::kText) && b.is(Kind::kText)) {
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
    for (const Value* value : {&a, &b})
        if (const std::string name = value->undefined_name(); !name.empty())
            throw Fault(fmt::format("'{}' is undefined", name));
    throw Fault(
        fmt::format("values of the types {} and {} have no order", type_name(a), type_name(b)));
}

bool contains(Meter& meter, const Value& haystack, const Value& needle) {
    switch (haystack.kind()) {
        case Kind::kText:
            return contains_text(meter, haystack, needle);
        case Kind::kDict:
            return find_key(meter, haystack.dict(), needle) != nullptr;
        case Kind::kRange:
            if (needle.is_integral()) {
                const Range& range = haystack.as<Range>();
                if (range.length == 0) return false;
                const int64_t last = range.start + range.step * (range.length - 1);
                const int64_t low = std::min(range.start, last);
                const int64_t high = std::max(range.start, last);
                const int64_t number = needle.integral();
                return number >= low && number <= high &&
                       (uint64_t(number) - uint64_t(low)) % step_size(range.step) == 0;
            }
            break;
        default:
            break;
    }
    if (!can_iterate(haystack)) {
        throw Fault(fmt::format("nothing can be in a value of type {}", type_name(haystack)));
    }
    Cursor cursor(meter, haystack);
    for (Value item; cursor.next(item);)
        if (are_equal(meter, item, needle)) return true;
    return false;
}

void require_key(const Value& key) {
    if (key.is(Kind::kTuple)) {
        for (const Value& item : key.items()) require_key(item);
        return;
    }
    if (key.is(Kind::kList) || key.is(Kind::kDict) || key.is(Kind::kView))
        throw Fault(fmt::format("a value of type {} cannot be a key", type_name(key)));
}

const Value* find_key(Meter& meter, const Dict& dict, const Value& key) {
    require_key(key);
    meter.step_items(dict.entries.size());
    if (key.is(Kind::kText)) return find_key(dict, key.text());
    for (const auto& [other, value] : dict.entries)
        if (are_equal(meter, other, key)) return &value;
    return nullptr;
}

const Value* find_key(const Dict& dict, std::string_view key) {
    for (const auto& [other, value] : dict.entries)
        if (other.is(Kind::kText) && other.text() == key) return &value;
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
