#include "base/json.h"

#include <fmt/core.h>

#include <cmath>

#include "base/check.h"

namespace dslaunch {

namespace {

// Length of the valid UTF-8 sequence that starts at I, 0 if there is none.
size_t utf8_length(std::string_view text, size_t i) {
    const auto at = [&](size_t k) {
        return k < text.size() ? static_cast<unsigned char>(text[k]) : 0U;
    };
    const unsigned lead = at(i);
    if (lead < 0x80) return 1;
    const size_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
    if (lead < 0xC2 || lead > 0xF4) return 0;
    for (size_t k = 1; k < length; ++k)
        if ((at(i + k) & 0xC0) != 0x80) return 0;
    const unsigned second = at(i + 1);
    const bool overlong = (lead == 0xE0 && second < 0xA0) || (lead == 0xF0 && second < 0x90);
    const bool beyond = (lead == 0xED && second >= 0xA0) || (lead == 0xF4 && second >= 0x90);
    return overlong || beyond ? 0 : length;
}

}  // namespace

std::string json_quote(std::string_view text) {
    std::string quoted = "\"";
    for (size_t i = 0; i < text.size();) {
        const size_t length = utf8_length(text, i);
        const char c = text[i];
        if (length == 0) {
            quoted += "\\ufffd";
            ++i;
            continue;
        }
        if (length > 1) {
            quoted.append(text.substr(i, length));
        } else if (c == '"' || c == '\\') {
            quoted += '\\';
            quoted += c;
        } else if (c == '\n') {
            quoted += "\\n";
        } else if (c == '\t') {
            quoted += "\\t";
        } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) {
            quoted += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
        } else {
            quoted += c;
        }
        i += length;
    }
    return quoted + '"';
}

void JsonWriter::separate() {
    if (after_key_) {
        after_key_ = false;
        return;
    }
    if (has_items_.empty()) return;
    if (has_items_.back()) text_ += ", ";
    has_items_.back() = true;
}

JsonWriter& JsonWriter::raw(std::string_view text) {
    separate();
    text_ += text;
    return *this;
}

JsonWriter& JsonWriter::begin_object() {
    raw("{");
    has_items_.push_back(false);
    return *this;
}

JsonWriter& JsonWriter::begin_array() {
    raw("[");
    has_items_.push_back(false);
    return *this;
}

JsonWriter& JsonWriter::end_object() {
    DSL_CHECK(!has_items_.empty() && !after_key_, "end_object without a begin");
    has_items_.pop_back();
    text_ += '}';
    return *this;
}

JsonWriter& JsonWriter::end_array() {
    DSL_CHECK(!has_items_.empty() && !after_key_, "end_array without a begin");
    has_items_.pop_back();
    text_ += ']';
    return *this;
}

JsonWriter& JsonWriter::key(std::string_view name) {
    DSL_CHECK(!has_items_.empty() && !after_key_, "key '{}' outside an object", name);
    separate();
    text_ += json_quote(name);
    text_ += ": ";
    after_key_ = true;
    return *this;
}

JsonWriter& JsonWriter::value(std::string_view text) {
    return raw(json_quote(text));
}
JsonWriter& JsonWriter::value(bool flag) {
    return raw(flag ? "true" : "false");
}

JsonWriter& JsonWriter::value(double number) {
    if (!std::isfinite(number)) return null();
    return raw(fmt::format("{}", number));
}

const std::string& JsonWriter::text() const {
    DSL_CHECK(has_items_.empty() && !after_key_, "an object or array is still open");
    return text_;
}

}  // namespace dslaunch
