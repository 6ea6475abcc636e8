// The values of a template: Python's, as far as templates see them. A value is small and shares its
// object; lists, dicts and texts never change, as in Jinja2's immutable sandbox. Values made for a
// rendering belong to its meter and must not outlive it. No threads, but several may read values
// without a meter.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/chat_template/values/limits.h"

namespace dslaunch::text::jinja {

enum class Kind : uint8_t {
    kUndefined,
    kNone,
    kBool,
    kInt,
    kLargeInt,  // a whole number over 64 bits: its decimal digits, nothing is calculated
    kFloat,
    kText,
    kList,
    kTuple,
    kRange,
    kView,      // dict.keys(), .values() or .items()
    kIterator,  // gives each element once, as the filter `map`
    kDict,
    kNamespace,  // the only value that a template may change
    kLoop,
    kFunction,
};

// The part of a value that is shared. Its bytes are given back to the meter at its end.
struct Object {
    Object() = default;
    Object(const Object&) = delete;
    Object& operator=(const Object&) = delete;
    virtual ~Object() {
        if (meter != nullptr) meter->release(held_bytes);
    }
    Meter* meter = nullptr;
    size_t held_bytes = 0;
    int depth = 0;  // levels of objects in it, without the contents of namespaces
};

struct Text;
struct Sequence;
struct Dict;

class Value {
  public:
    Value() = default;  // undefined
    [[nodiscard]] static Value none() { return Value(Kind::kNone); }
    [[nodiscard]] static Value boolean(bool flag);
    [[nodiscard]] static Value integer(int64_t number);
    [[nodiscard]] static Value real(double number);
    // Returns undefined because of NAME, which must outlive the value.
    [[nodiscard]] static Value undefined(const std::string& name);
    // Returns undefined because a dict has no KEY, a text.
    [[nodiscard]] static Value undefined_key(const Value& key);
    [[nodiscard]] static Value of(Kind kind, std::shared_ptr<Object> object);

    [[nodiscard]] Kind kind() const { return kind_; }
    [[nodiscard]] bool is(Kind kind) const { return kind_ == kind; }
    // Returns true for a bool or an int of 64 bits, as Python's bool is an int.
    [[nodiscard]] bool is_integral() const { return is(Kind::kInt) || is(Kind::kBool); }
    [[nodiscard]] bool is_number() const { return is_integral() || is(Kind::kFloat); }
    [[nodiscard]] bool is_sequence() const { return is(Kind::kList) || is(Kind::kTuple); }
    // Returns true if items() may be called.
    [[nodiscard]] bool has_items() const {
        return kind_ >= Kind::kList && kind_ <= Kind::kIterator;
    }

    // REQUIRES for each: the kind that it reads.
    [[nodiscard]] int64_t integral() const { return integer_; }
    [[nodiscard]] double as_double() const { return is(Kind::kFloat) ? real_ : double(integer_); }
    [[nodiscard]] const std::string& text() const;  // of a large whole number: its digits
    [[nodiscard]] const Text& text_object() const { return as<Text>(); }
    [[nodiscard]] const std::vector<Value>& items() const;
    [[nodiscard]] const Dict& dict() const { return as<Dict>(); }
    template <typename T>
    [[nodiscard]] T& as() const {
        return *static_cast<T*>(object_.get());
    }
    [[nodiscard]] const std::shared_ptr<Object>& object() const { return object_; }

    // Returns the name that is not defined, "" when it is not known.
    [[nodiscard]] std::string undefined_name() const;
    [[nodiscard]] int depth() const { return object_ == nullptr ? 0 : object_->depth; }
    // Returns Python's `is`: the same object, or the same number, none or truth.
    [[nodiscard]] bool same_as(const Value& other) const;

  private:
    explicit Value(Kind kind) : kind_(kind) {}

    Kind kind_ = Kind::kUndefined;
    union {
        int64_t integer_ = 0;
        double real_;
        const std::string* name_;
    };
    std::shared_ptr<Object> object_;
};

using Values = std::vector<Value>;
using Entry = std::pair<Value, Value>;

struct Text : Object {
    std::string text;
    int64_t points = 0;    // its length for Python
    bool is_safe = false;  // made by `safe`: Markup
    [[nodiscard]] bool is_ascii() const { return points == int64_t(text.size()); }
};
struct Sequence : Object {
    Values items;
    size_t given_count = 0;  // of an iterator: the elements that it has given
};
struct Dict : Object {
    std::vector<Entry> entries;  // in the order given, no key twice
};
struct Namespace : Object {
    std::vector<std::pair<std::string, Value>> fields;
};

// Makes an object of type T. METER holds BYTES (and its own); nullptr: nobody does.
template <typename T>
[[nodiscard]] std::shared_ptr<T> make_object(Meter* meter, size_t bytes) {
    auto object = std::make_shared<T>();
    if (meter != nullptr) {
        meter->hold(bytes + sizeof(T));
        object->meter = meter;
        object->held_bytes = bytes + sizeof(T);
    }
    return object;
}

// Each makes a value of METER (nullptr: of nobody) and throws Fault over a limit. REQUIRES: TEXT is
// UTF-8.
[[nodiscard]] Value new_text(Meter* meter, std::string text, bool is_safe = false);
// Returns the whole number of DIGITS, which are decimal, after a `-` or not. Throws Fault for more
// digits than Python reads.
[[nodiscard]] Value new_integer(Meter* meter, std::string_view digits);
// REQUIRES: KIND has items.
[[nodiscard]] Value new_sequence(Meter* meter, Kind kind, Values items);
[[nodiscard]] Value new_list(Meter* meter, Values items);
[[nodiscard]] Value new_tuple(Meter* meter, Values items);
// REQUIRES: no key twice.
[[nodiscard]] Value new_dict(Meter* meter, std::vector<Entry> entries);
// Returns one level more than DEPTH. Throws Fault when that is too deep.
[[nodiscard]] int deeper(int depth);

// Returns Python's name of VALUE's type, as "str", "int" or "list".
[[nodiscard]] const char* type_name(const Value& value);

// Goes over the parts of VALUE: elements, a dict's keys, a text's characters. An undefined value
// has no parts. Throws Fault when VALUE has no parts by its kind.
class Cursor {
  public:
    Cursor() = default;
    Cursor(Meter& meter, Value source);
    [[nodiscard]] bool next(Value& value);

  private:
    Meter* meter_ = nullptr;
    Value source_;
    size_t at_ = 0;
};
[[nodiscard]] bool can_iterate(const Value& value);
// Returns all parts of VALUE.
[[nodiscard]] Values all_of(Meter& meter, const Value& value);
// Returns Python's len(), nothing for a value without one.
[[nodiscard]] std::optional<int64_t> length_of(const Value& value);

}  // namespace dslaunch::text::jinja
