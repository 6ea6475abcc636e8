#include "text/chat_template/values/value.h"

#include "text/chat_template/values/points.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

namespace dslaunch::text::jinja {
namespace {

int depth_above(std::span<const Value> items) {
    int depth = 0;
    for (const Value& item : items) depth = std::max(depth, item.depth());
    return deeper(depth);
}

Value new_sequence(Meter* meter, Kind kind, Values items) {
    const int depth = depth_above(items);
    auto object = make_object<Sequence>(meter, items.size() * sizeof(Value));
    object->items = std::move(items);
    object->depth = depth;
    return Value::of(kind, std::move(object));
}

}  // namespace

Value Value::boolean(bool flag) {
    Value value(Kind::kBool);
    value.integer_ = flag;
    return value;
}

Value Value::integer(int64_t number) {
    Value value(Kind::kInt);
    value.integer_ = number;
    return value;
}

Value Value::real(double number) {
    Value value(Kind::kFloat);
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
    value.object_ = key.object();  // which has the name
    return value;
}

Value Value::of(Kind kind, std::shared_ptr<Object> object) {
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
    return is(Kind::kUndefined) && name_ != nullptr ? *name_ : "";
}

bool Value::same_as(const Value& other) const {
    if (kind_ != other.kind_) return false;
    switch (kind_) {
        case Kind::kUndefined:
            return this == &other;
        case Kind::kNone:
            return true;
        case Kind::kBool:
        case Kind::kInt:
            return integer_ == other.integer_;
        case Kind::kFloat:
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
    return Value::of(Kind::kText, std::move(object));
}

Value new_integer(Meter* meter, std::string_view digits) {
    constexpr size_t kDigitsMax = 4300;  // sys.get_int_max_str_digits()
    const bool is_negative = digits.starts_with('-');
    if (is_negative) digits.remove_prefix(1);
    digits.remove_prefix(std::min(digits.find_first_not_of('0'), digits.size()));
    if (digits.size() > kDigitsMax)
        throw Fault(
            fmt::format("a whole number has {} digits, {} at most", digits.size(), kDigitsMax));
    std::string text = (is_negative ? "-" : "") + std::string(digits.empty() ? "0" : digits);
    int64_t number = 0;
    const auto read = std::from_chars(text.data(), text.data() + text.size(), number);
    if (read.ec == std::errc()) return Value::integer(number);
    auto object = make_object<Text>(meter, text.size());
    object->text = std::move(text);
    return Value::of(Kind::kLargeInt, std::move(object));
}

Value new_list(Meter* meter, Values items) {
    if (meter != nullptr) meter->step_items(items.size());
    return new_sequence(meter, Kind::kList, std::move(items));
}

Value new_tuple(Meter* meter, Values items) {
    if (meter != nullptr) meter->step_items(items.size());
    return new_sequence(meter, Kind::kTuple, std::move(items));
}

Value new_dict(Meter* meter, std::vector<Entry> entries) {
    int depth = 0;
    for (const auto& [key, value] : entries) depth = std::max({depth, key.depth(), value.depth()});
    auto object = make_object<Dict>(meter, entries.size() * sizeof(Entry));
    object->depth = deeper(depth);
    object->entries = std::move(entries);
    return Value::of(Kind::kDict, std::move(object));
}

Value new_range(Meter* meter, int64_t start, int64_t stop, int64_t step) {
    if (step == 0) throw Fault("range() has the step 0");
    auto object = make_object<Range>(meter, 0);
    object->start = start;
    object->stop = stop;
    object->step = step;
    const bool is_empty = step > 0 ? start >= stop : start <= stop;
    if (!is_empty) {
        const uint64_t way =
            step > 0 ? uint64_t(stop) - uint64_t(start) : uint64_t(start) - uint64_t(stop);
        const uint64_t stride = step > 0 ? uint64_t(step) : uint64_t(0) - uint64_t(step);
        const uint64_t length = (way - 1) / stride + 1;
        if (length > uint64_t(kRangeLengthMax))
            throw Fault(fmt::format("a range of {} elements, {} at most", length, kRangeLengthMax));
        object->length = int64_t(length);
    }
    return Value::of(Kind::kRange, std::move(object));
}

Value new_iterator(Meter* meter, int depth, std::function<bool(Value&)> next) {
    auto object = make_object<Iterator>(meter, 128);
    object->depth = deeper(depth);
    object->next = std::move(next);
    return Value::of(Kind::kIterator, std::move(object));
}

Value new_view(Meter* meter, const Value& dict, View::What what) {
    auto object = make_object<View>(meter, 0);
    object->depth = deeper(dict.depth());
    object->source = dict;
    object->what = what;
    return Value::of(Kind::kView, std::move(object));
}

int deeper(int depth) {
    if (depth >= kValueDepthMax)
        throw Fault(fmt::format("values stand more than {} deep in each other", kValueDepthMax));
    return depth + 1;
}

std::string type_name(const Value& value) {
    switch (value.kind()) {
        case Kind::kUndefined:
            return "Undefined";
        case Kind::kNone:
            return "NoneType";
        case Kind::kBool:
            return "bool";
        case Kind::kInt:
        case Kind::kLargeInt:
            return "int";
        case Kind::kFloat:
            return "float";
        case Kind::kText:
            return value.text_object().is_safe ? "Markup" : "str";
        case Kind::kList:
            return "list";
        case Kind::kTuple:
            return "tuple";
        case Kind::kDict:
            return "dict";
        case Kind::kRange:
            return "range";
        case Kind::kView:
            return "dict view";
        case Kind::kIterator:
            return "generator";
        case Kind::kNamespace:
            return "namespace";
        case Kind::kLoop:
            return "loop";
        case Kind::kCycler:
            return "cycler";
        case Kind::kFunction:
            return "function";
    }
    return "";
}

Cursor::Cursor(Meter& meter, Value source) : meter_(&meter), source_(std::move(source)) {
    if (can_iterate(source_)) return;
    throw Fault(fmt::format("a value of type {} has no elements to go over", type_name(source_)));
}

bool Cursor::next(Value& value) {
    const auto element = [&](const Values& items) {
        if (at_ >= items.size()) return false;
        value = items[at_++];
        return true;
    };
    switch (source_.kind()) {
        case Kind::kList:
        case Kind::kTuple:
            return element(source_.items());
        case Kind::kDict: {
            const auto& entries = source_.dict().entries;
            if (at_ >= entries.size()) return false;
            value = entries[at_++].first;
            return true;
        }
        case Kind::kView: {
            const View& view = source_.as<View>();
            const auto& entries = view.source.dict().entries;
            if (at_ >= entries.size()) return false;
            const auto& [key, item] = entries[at_++];
            if (view.what == View::What::kItems) {
                value = new_tuple(meter_, {key, item});
            } else {
                value = view.what == View::What::kKeys ? key : item;
            }
            return true;
        }
        case Kind::kText: {
            const std::string& text = source_.text();
            if (at_ >= text.size()) return false;
            const size_t bytes = point_bytes(text[at_]);
            value = new_text(meter_, text.substr(at_, bytes));
            at_ += bytes;
            return true;
        }
        case Kind::kRange: {
            const Range& range = source_.as<Range>();
            if (int64_t(at_) >= range.length) return false;
            value = Value::integer(range.start + range.step * int64_t(at_++));
            return true;
        }
        case Kind::kIterator: {
            meter_->step();
            const std::shared_ptr<Object> keeps = source_.object();
            return source_.as<Iterator>().next(value);
        }
        default:
            return false;
    }
}

bool can_iterate(const Value& value) {
    switch (value.kind()) {
        case Kind::kUndefined:
        case Kind::kText:
        case Kind::kList:
        case Kind::kTuple:
        case Kind::kDict:
        case Kind::kRange:
        case Kind::kView:
        case Kind::kIterator:
            return true;
        default:
            return false;
    }
}

Values all_of(Meter& meter, const Value& value) {
    if (value.is_sequence()) {
        meter.step_items(value.items().size());
        return value.items();
    }
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
    switch (value.kind()) {
        case Kind::kUndefined:
            return 0;
        case Kind::kText:
            return value.text_object().points;
        case Kind::kList:
        case Kind::kTuple:
            return int64_t(value.items().size());
        case Kind::kDict:
            return int64_t(value.dict().entries.size());
        case Kind::kRange:
            return value.as<Range>().length;
        case Kind::kView:
            return int64_t(value.as<View>().source.dict().entries.size());
        default:
            return std::nullopt;
    }
}

}  // namespace dslaunch::text::jinja
