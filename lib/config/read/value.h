// The tree of a config's text: every value with the place it came from. The step before the schema.
// No threads: value types.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace dslaunch::config {

// The place where a value was given: "ds_config.json:3:5", "--set" or "--steps".
using Origin = std::string;

struct Value {
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
    // Returns the value of KEY; nullptr: no such key. REQUIRES: an object.
    [[nodiscard]] const Value* find(std::string_view key) const;
    // Returns kInt or kFloat as a double.
    [[nodiscard]] double as_double() const { return is(Kind::kInt) ? double(integer) : number; }
};

struct Problem {
    std::string path;     // "zero_optimization.stage", empty: the whole text
    std::string message;  // without path and place
    Origin origin;        // empty: no place, a relation between values

    // Returns "ds_config.json:3:5: zero_optimization.stage: MESSAGE".
    [[nodiscard]] std::string text() const;
};

// Returns true if A and B mean the same: 1 equals 1.0, order of keys and origins do not count.
[[nodiscard]] bool same_value(const Value& a, const Value& b);

// Returns the value at "a.b.c", nullptr when a part of the path is missing or not an object.
[[nodiscard]] const Value* find_path(const Value& root, std::string_view path);

// Puts VALUE at "a.b.c", making objects on the way. Returns false if a part is not an object.
[[nodiscard]] bool set_path(Value& root, std::string_view path, Value value);

// Returns VALUE as JSON; INDENT < 0: on one line. NaN and infinities become null.
[[nodiscard]] std::string to_json(const Value& value, int indent = -1);

// Returns "a bool", "an integer 3", "a string \"3\"": for messages.
[[nodiscard]] std::string describe(const Value& value);

[[nodiscard]] Value make_value(bool flag);
[[nodiscard]] Value make_value(int64_t number);
[[nodiscard]] Value make_value(double number);
[[nodiscard]] Value make_value(std::string text);

}  // namespace dslaunch::config
