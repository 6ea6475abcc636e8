// JSON output, streamed into a string: run.json, metrics.jsonl, --json. Reading is done elsewhere
// by libraries.
#pragma once

#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace dslaunch {

// Keys and values in the order written; nesting is checked (a bug aborts). Doubles print the
// shortest text that reads back equal; NaN and infinities become null. Bytes that are not UTF-8
// become U+FFFD.
class JsonWriter {
  public:
    JsonWriter& begin_object();
    JsonWriter& end_object();
    JsonWriter& begin_array();
    JsonWriter& end_array();
    JsonWriter& key(std::string_view name);
    JsonWriter& value(std::string_view text);
    JsonWriter& value(const char* text) { return value(std::string_view(text)); }
    JsonWriter& value(bool flag);
    JsonWriter& value(double number);
    template <std::integral Integer>
    requires(!std::same_as<Integer, bool>) JsonWriter& value(Integer number) {
        return raw(std::to_string(number));
    }
    JsonWriter& null() { return raw("null"); }
    // Writes TEXT, which is already JSON.
    JsonWriter& raw(std::string_view text);

    template <typename Value>
    JsonWriter& field(std::string_view name, const Value& content) {
        return key(name).value(content);
    }

    // REQUIRES: every object and array is ended.
    [[nodiscard]] const std::string& text() const;

  private:
    void separate();

    std::string text_;
    std::vector<bool> has_items_;  // one per open object or array
    bool after_key_ = false;
};

// Returns TEXT in double quotes with JSON's escapes.
[[nodiscard]] std::string json_quote(std::string_view text);

}  // namespace dslaunch
