// The tree of values in a config's text, each with the place where it was given. It is built before
// the schema is applied. No threads: value types.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace dslaunch::config {

// The place where a value was given: "ds_config.json:3:5", "--set" or "--steps".
using Origin = std::string;

// A value and all values in it. Only the field that KIND names is in use.
struct Value {
    // kFloat: every number that is not written as an integer of 64 bits.
    enum class Kind { kNull, kBool, kInt, kFloat, kString, kList, kObject };

    Kind kind = Kind::kNull;
    bool boolean = false;
    int64_t integer = 0;
    double number = 0.0;
    std::string text = {};               // kString: the text
    std::vector<std::string> keys = {};  // kObject: names, in the order given
    std::vector<Value> items = {};       // kList: elements; kObject: values, one per key
    Origin origin = {};

    [[nodiscard]] bool is(Kind other) const { return kind == other; }
    // Returns the value of KEY; nullptr if there is no such key. REQUIRES: an object.
    [[nodiscard]] const Value* find(std::string_view key) const;
    // Returns kInt or kFloat as a double.
    [[nodiscard]] double as_double() const { return is(Kind::kInt) ? double(integer) : number; }
};

// One mistake in a config, as it is shown to the user.
struct Problem {
    std::string path;     // "zero_optimization.stage"; empty for the whole text
    std::string message;  // without path and place
    Origin origin;        // empty for a relation between values, which has no place

    // Returns "ds_config.json:3:5: zero_optimization.stage: MESSAGE".
    [[nodiscard]] std::string text() const;
};

// Returns true if A and B mean the same: 1 equals 1.0, and the order of keys and the origins do not
// count.
[[nodiscard]] bool same_value(const Value& a, const Value& b);

// Returns the value at "a.b.c"; nullptr if a part of the path is missing or not an object.
[[nodiscard]] const Value* find_path(const Value& root, std::string_view path);

// Sets the value at "a.b.c" to VALUE, and makes missing objects on the path. Returns false if a
// part of the path is not an object.
[[nodiscard]] bool set_path(Value& root, std::string_view path, Value value);

// Returns VALUE as JSON, on one line if INDENT < 0. NaN and infinities become null.
[[nodiscard]] std::string to_json(const Value& value, int indent = -1);

// Returns a description for messages: "a bool", "an integer 3", "a string \"3\"".
[[nodiscard]] std::string describe(const Value& value);

// Return a value without an origin.
[[nodiscard]] Value make_value(bool flag);
[[nodiscard]] Value make_value(int64_t number);
[[nodiscard]] Value make_value(double number);
[[nodiscard]] Value make_value(std::string text);

}  // namespace dslaunch::config
