// The values of a template: Python's values, as far as templates can see them. A value is small and
// shares its object; lists, dicts and strings never change, as in Jinja2's immutable sandbox.
// Values made for a rendering belong to its meter and must not outlive it. One thread; only values
// without a meter may be read by several threads.
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

// The types of values. Kinds with items are next to each other, from kList to kIterator.
enum class ValueKind : uint8_t {
    kUndefined,
    kNone,
    kBool,
    kInt,
    kLargeInt,  // a whole number over 64 bits, as decimal digits; not for calculations
    kFloat,
    kText,
    kList,
    kTuple,
    kRange,
    kView,      // dict.keys(), .values() or .items()
    kIterator,  // gives each element once, such as the result of `map`
    kDict,
    kNamespace,  // the only value that a template may change
    kLoop,
    kFunction,
};

// The part of a value that its copies share. The destructor releases the object's bytes in the
// meter.
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

// A value of any kind. Copies share the object.
class Value {
  public:
    Value() = default;  // undefined
    // Return a value of a kind that needs no object.
    [[nodiscard]] static Value none() { return Value(ValueKind::kNone); }
    [[nodiscard]] static Value boolean(bool flag);
    [[nodiscard]] static Value integer(int64_t number);
    [[nodiscard]] static Value real(double number);
    // Returns an undefined value for the missing NAME, which must outlive the value.
    [[nodiscard]] static Value undefined(const std::string& name);
    // Returns an undefined value for KEY, a string that a dict does not have as a key.
    [[nodiscard]] static Value undefined_key(const Value& key);
    // Returns a value of KIND that shares OBJECT. REQUIRES: OBJECT has the type that KIND uses, for
    // example Dict for kDict.
    [[nodiscard]] static Value of(ValueKind kind, std::shared_ptr<Object> object);

    [[nodiscard]] ValueKind kind() const { return kind_; }
    [[nodiscard]] bool is(ValueKind kind) const { return kind_ == kind; }
    // Returns true for a bool or an int of at most 64 bits, because Python's bool is an int.
    [[nodiscard]] bool is_integral() const { return is(ValueKind::kInt) || is(ValueKind::kBool); }
    // Returns true for a bool, a float, or an int of at most 64 bits.
    [[nodiscard]] bool is_number() const { return is_integral() || is(ValueKind::kFloat); }
    [[nodiscard]] bool is_sequence() const { return is(ValueKind::kList) || is(ValueKind::kTuple); }
    // Returns true if items() may be called.
    [[nodiscard]] bool has_items() const {
        return kind_ >= ValueKind::kList && kind_ <= ValueKind::kIterator;
    }

    // Return the contents of the value. REQUIRES: the value has a kind that the function can read.
    [[nodiscard]] int64_t integral() const { return integer_; }
    [[nodiscard]] double as_double() const {
        return is(ValueKind::kFloat) ? real_ : double(integer_);
    }
    [[nodiscard]] const std::string& text() const;  // for a large whole number, its digits
    [[nodiscard]] const Text& text_object() const { return as<Text>(); }
    [[nodiscard]] const std::vector<Value>& items() const;
    [[nodiscard]] const Dict& dict() const { return as<Dict>(); }
    template <typename T>
    [[nodiscard]] T& as() const {
        return *static_cast<T*>(object_.get());
    }
    // Returns the shared object, or null if values of this kind have no object.
    [[nodiscard]] const std::shared_ptr<Object>& object() const { return object_; }

    // Returns the name that is not defined, or "" if it is not known.
    [[nodiscard]] std::string undefined_name() const;
    // Returns Object::depth, or 0 for a value without an object.
    [[nodiscard]] int depth() const { return object_ == nullptr ? 0 : object_->depth; }
    // Returns the result of Python's `is`: true for the same object, number, none or bool.
    [[nodiscard]] bool same_as(const Value& other) const;

  private:
    explicit Value(ValueKind kind) : kind_(kind) {}

    ValueKind kind_ = ValueKind::kUndefined;
    union {
        int64_t integer_ = 0;
        double real_;
        const std::string* name_;
    };
    std::shared_ptr<Object> object_;
};

using Values = std::vector<Value>;
using Entry = std::pair<Value, Value>;

// A string, or the digits of a large whole number.
struct Text : Object {
    std::string text;
    int64_t points = 0;    // its length in Python
    bool is_safe = false;  // Markup, made by `safe`
    // Returns true if all characters are ASCII, so that bytes and code points have the same
    // indices.
    [[nodiscard]] bool is_ascii() const { return points == int64_t(text.size()); }
};
// The elements of a list, tuple, range, view or iterator.
struct Sequence : Object {
    Values items;
    size_t given_count = 0;  // of an iterator: how many elements it has given
};
// The entries of a dict.
struct Dict : Object {
    std::vector<Entry> entries;  // in the given order, without equal keys
};
// The fields of a namespace, which `set` may change.
struct Namespace : Object {
    std::vector<std::pair<std::string, Value>> fields;
};

// Makes an object of type T. METER counts BYTES and the size of T; if METER is nullptr, nothing
// counts them.
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

// Make a value that METER counts; if METER is nullptr, nothing counts it. Throw Fault if a limit is
// exceeded. REQUIRES: TEXT is UTF-8.
[[nodiscard]] Value new_text(Meter* meter, std::string text, bool is_safe = false);
// Returns the whole number that DIGITS describe: decimal digits, with or without a `-` before them.
// Throws Fault if there are more digits than Python reads.
[[nodiscard]] Value new_integer(Meter* meter, std::string_view digits);
// REQUIRES: KIND is a kind with items.
[[nodiscard]] Value new_sequence(Meter* meter, ValueKind kind, Values items);
// Return a list, or a tuple, of ITEMS.
[[nodiscard]] Value new_list(Meter* meter, Values items);
[[nodiscard]] Value new_tuple(Meter* meter, Values items);
// REQUIRES: no key occurs twice.
[[nodiscard]] Value new_dict(Meter* meter, std::vector<Entry> entries);
// Returns DEPTH + 1. Throws Fault if this result is too deep.
[[nodiscard]] int deeper(int depth);

// Returns Python's name of VALUE's type, such as "str", "int" or "list".
[[nodiscard]] const char* type_name(const Value& value);

// An iterator over a value's elements, a dict's keys, or a string's characters. An undefined value
// has no elements. Throws Fault if values of this kind cannot be iterated.
class Cursor {
  public:
    Cursor() = default;
    Cursor(Meter& meter, Value source);
    // Sets VALUE to the next element. Returns false if there is none. Throws Fault if a limit is
    // exceeded.
    [[nodiscard]] bool next(Value& value);

  private:
    Meter* meter_ = nullptr;
    Value source_;
    size_t at_ = 0;
};
// Returns true if a Cursor over VALUE does not throw Fault for its kind.
[[nodiscard]] bool can_iterate(const Value& value);
// Returns everything that a Cursor over VALUE gives.
[[nodiscard]] Values all_of(Meter& meter, const Value& value);
// Returns Python's len(), or nothing for a value that has no length.
[[nodiscard]] std::optional<int64_t> length_of(const Value& value);

}  // namespace dslaunch::text::jinja
