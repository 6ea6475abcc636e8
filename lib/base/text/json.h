// Writes JSON into a string, for run.json, metrics.jsonl and --json. This file does not read JSON.
#pragma once

#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace dslaunch {

// A writer that puts keys and values into JSON in the order of the calls. Calls that do not nest
// correctly are a bug, and the program aborts. Doubles are printed as the shortest text that reads
// back equal; NaN and infinities become null. Bytes that are not UTF-8 become U+FFFD.
class JsonWriter {
  public:
    enum class Form { kSpaced, kCompact };  // with or without a blank after each comma and colon

    JsonWriter() = default;
    explicit JsonWriter(Form form) : form_(form) {}

    // Each function returns *this, so that calls can be chained. In an object, write a key before
    // each value.
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
    // Writes the value null.
    JsonWriter& null() { return raw("null"); }
    // Writes TEXT, which is JSON already, as it is.
    JsonWriter& raw(std::string_view text);

    // Writes a key and its value.
    template <typename Value>
    JsonWriter& field(std::string_view name, const Value& content) {
        return key(name).value(content);
    }

    // Returns the JSON. REQUIRES: every object and array is ended.
    [[nodiscard]] const std::string& text() const;

  private:
    void separate();

    Form form_ = Form::kSpaced;
    std::string text_;
    std::vector<bool> has_items_;  // one per open object or array
    bool is_after_key_ = false;
};

// Returns TEXT in double quotes with JSON's escapes.
[[nodiscard]] std::string json_quote(std::string_view text);

}  // namespace dslaunch
