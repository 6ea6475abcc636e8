// Truth, equality, order and membership as in Python. All throw Fault where Python raises an
// exception.
#pragma once

#include <compare>
#include <string_view>
#include <vector>

#include "text/chat_template/values/values.h"

namespace dslaunch::text::jinja {

// Returns Python's bool(VALUE): false for 0, none, and empty or undefined values.
[[nodiscard]] bool is_true(const Value& value);
// Returns the result of Python's `==`: 1 equals 1.0 and True, and a list never equals a tuple.
[[nodiscard]] bool are_equal(Meter& meter, const Value& a, const Value& b);
// Returns the order of A and B in Python. Throws Fault if Python cannot compare values of these
// types, for example a number and a string, and for numbers that need more than 64 bits.
[[nodiscard]] std::partial_ordering order_of(Meter& meter, const Value& a, const Value& b);
// Returns `needle in haystack`.
[[nodiscard]] bool contains(Meter& meter, const Value& haystack, const Value& needle);

// Returns the value of KEY in DICT, or nullptr if there is none. Throws Fault if KEY cannot be a
// key.
[[nodiscard]] const Value* find_key(Meter& meter, const Dict& dict, const Value& key);
[[nodiscard]] const Value* find_key(const Dict& dict, std::string_view key);
// Returns true if KEY can be the key of a dict: it is not a list or dict and contains none.
[[nodiscard]] bool can_be_key(const Value& key);

// Puts KEY with VALUE into ENTRIES, replacing the value of an equal key if there is one. Throws
// Fault if KEY cannot be a key.
void put_entry(Meter& meter, std::vector<Entry>& entries, Value key, Value value);

}  // namespace dslaunch::text::jinja
