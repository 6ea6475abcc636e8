#include "text/chat_template/values/values.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <iterator>

#include "text/unicode/code_points.h"

namespace dslaunch::text::jinja {

Value Value::boolean(bool flag) {
    Value value(ValueKind::kBool);
    value.integer_ = flag;
    return value;
}

Value Value::integer(int64_t number) {
    Value value(ValueKind::kInt);
    value.integer_ = number;
    return value;
}

Value Value::real(double number) {
    Value value(ValueKind::kFloat);
    value.real_ = number;
    return value;
}

Value Value::undefined(const std::string& name) {
    Value value;
    value.name_ = &name;
    return value;
}

Value Value::undefined_key(const Value& key) {
    Value value = undefined(key.text());
    value.object_ = key.object();  // keeps the name alive
    return value;
}

Value Value::of(ValueKind kind, std::shared_ptr<Object> object) {
    Value value(kind);
    value.object_ = std::move(object);
    return value;
}

const std::string& Value::text() const {
    return as<Text>().text;
}

const std::vector<Value>& Value::items() const {
    return as<Sequence>().items;
}

std::string Value::undefined_name() const {
    return is(ValueKind::kUndefined) && name_ != nullptr ? *name_ : "";
}

bool Value::same_as(const Value& other) const {
    if (kind_ != other.kind_) return false;
    switch (kind_) {
        case ValueKind::kUndefined:
            return this == &other;
        case ValueKind::kNone:
            return true;
        case ValueKind::kBool:
        case ValueKind::kInt:
            return integer_ == other.integer_;
        case ValueKind::kFloat:
            return real_ == other.real_;
        default:
            return object_ == other.object_;
    }
}

Value new_text(Meter* meter, std::string text, bool is_safe) {
    if (meter != nullptr) meter->step_text(text.size());
    auto object = make_object<Text>(meter, text.size());
    object->points = count_points(text);
    object->text = std::move(text);
    object->is_safe = is_safe;
    return Value::of(ValueKind::kText, std::move(object));
}

Value new_integer(Meter* meter, std::string_view digits) {
    constexpr size_t kDigitsMax = 4300;  // sys.get_int_max_str_digits()
    const bool is_negative = digits.starts_with('-');
    if (is_negative) digits.remove_prefix(1);
    digits.remove_prefix(std::min(digits.find_first_not_of('0'), digits.size()));
    if (digits.size() > kDigitsMax)
        throw Fault(fmt::format("a whole number has {} digits, but at most {} are supported",
                                digits.size(), kDigitsMax));
    std::string text(is_negative ? "-" : "");
    text += digits.empty() ? "0" : digits;
    int64_t number = 0;
    const auto read = std::from_chars(text.data(), text.data() + text.size(), number);
    if (read.ec == std::errc()) return Value::integer(number);
    auto object = make_object<Text>(meter, text.size());
    object->text = std::move(text);
    return Value::of(ValueKind::kLargeInt, std::move(object));
}

Value new_sequence(Meter* meter, ValueKind kind, Values items) {
    if (meter != nullptr) meter->step_items(items.size());
    int depth = 0;
    for (const Value& item : items) depth = std::max(depth, item.depth());
    depth = deeper(depth);
    auto object = make_object<Sequence>(meter, items.size() * sizeof(Value));
    object->items = std::move(items);
    object->depth = depth;
    return Value::of(kind, std::move(object));
}

Value new_list(Meter* meter, Values items) {
    return new_sequence(meter, ValueKind::kList, std::move(items));
}

Value new_tuple(Meter* meter, Values items) {
    return new_sequence(meter, ValueKind::kTuple, std::move(items));
}

Value new_dict(Meter* meter, std::vector<Entry> entries) {
    int depth = 0;
    for (const auto& [key, value] : entries) depth = std::max({depth, key.depth(), value.depth()});
    depth = deeper(depth);
    auto object = make_object<Dict>(meter, entries.size() * sizeof(Entry));
    object->depth = depth;
    object->entries = std::move(entries);
    return Value::of(ValueKind::kDict, std::move(object));
}

int deeper(int depth) {
    if (depth >= kValueDepthMax)
        throw Fault(fmt::format("values are nested more than {} levels deep", kValueDepthMax));
    return depth + 1;
}

const char* type_name(const Value& value) {
    constexpr const char* kNames[] = {
        "Undefined", "NoneType", "bool",      "int",       "int",  "float",     "str",  "list",
        "tuple",     "range",    "dict view", "generator", "dict", "namespace", "loop", "function"};
    return kNames[static_cast<size_t>(value.kind())];
}

Cursor::Cursor(Meter& meter, Value source) : meter_(&meter), source_(std::move(source)) {
    if (can_iterate(source_)) return;
    throw Fault(fmt::format("a value of type {} cannot be iterated", type_name(source_)));
}

bool Cursor::next(Value& value) {
    if (source_.is(ValueKind::kText)) {
        const std::string& text = source_.text();
        if (at_ >= text.size()) return false;
        const size_t bytes = point_bytes(text[at_]);
        value = new_text(meter_, text.substr(at_, bytes));
        at_ += bytes;
        return true;
    }
    if (source_.is(ValueKind::kDict)) {
        const auto& entries = source_.dict().entries;
        if (at_ >= entries.size()) return false;
        value = entries[at_++].first;
        return true;
    }
    if (!source_.has_items()) return false;
    auto& sequence = source_.as<Sequence>();
    size_t& at = source_.is(ValueKind::kIterator) ? sequence.given_count : at_;
    if (at >= sequence.items.size()) return false;
    value = sequence.items[at++];
    return true;
}

bool can_iterate(const Value& value) {
    return value.has_items() || value.is(ValueKind::kUndefined) || value.is(ValueKind::kText) ||
           value.is(ValueKind::kDict);
}

Values all_of(Meter& meter, const Value& value) {
    Values items;
    Cursor cursor(meter, value);
    for (Value item; cursor.next(item);) {
        meter.step();
        if ((items.size() & 1023) == 0) meter.check_bytes(items.size() * sizeof(Value));
        items.push_back(std::move(item));
    }
    return items;
}

std::optional<int64_t> length_of(const Value& value) {
    if (value.is(ValueKind::kUndefined)) return 0;
    if (value.is(ValueKind::kText)) return value.text_object().points;
    if (value.is(ValueKind::kDict)) return std::ssize(value.dict().entries);
    if (value.has_items() && !value.is(ValueKind::kIterator)) return std::ssize(value.items());
    return std::nullopt;
}

}  // namespace dslaunch::text::jinja
