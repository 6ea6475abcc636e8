// Truth, equality, order and membership as Python has them. All throw Fault where Python raises.
#pragma once

#include <compare>
#include <string_view>
#include <vector>

#include "text/chat_template/values/value.h"

namespace dslaunch::text::jinja {

[[nodiscard]] bool is_true(const Value& value);
// Returns Python's `==`: 1 equals 1.0 and True, and a list never equals a tuple.
[[nodiscard]] bool are_equal(Meter& meter, const Value& a, const Value& b);
// Returns Python's order. Throws Fault for kinds without an order between them, and for numbers
// over 64 bits.
[[nodiscard]] std::partial_ordering order_of(Meter& meter, const Value& a, const Value& b);
// Returns `needle in haystack`.
[[nodiscard]] bool contains(Meter& meter, const Value& haystack, const Value& needle);

// Returns the value of KEY in DICT, nullptr without one. Throws Fault for a key that cannot be one.
[[nodiscard]] const Value* find_key(Meter& meter, const Dict& dict, const Value& key);
[[nodiscard]] const Value* find_key(const Dict& dict, std::string_view key);
// Returns true if KEY can be the key of a dict: it is not a list or dict and holds none.
[[nodiscard]] bool can_be_key(const Value& key);

// Puts KEY with VALUE into ENTRIES, in the place of the same key if there is one. Throws Fault for
// a key that cannot be one.
void put_entry(Meter& meter, std::vector<Entry>& entries, Value key, Value value);

}  // namespace dslaunch::text::jinja
