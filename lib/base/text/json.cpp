#include "base/text/json.h"

#include <fmt/core.h>

#include <cmath>

#include "base/check.h"
#include "base/text.h"

namespace dslaunch {

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
    if (is_after_key_) {
        is_after_key_ = false;
        return;
    }
    if (has_items_.empty()) return;
    if (has_items_.back()) text_ += form_ == Form::kCompact ? "," : ", ";
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
    DSL_CHECK(!has_items_.empty() && !is_after_key_, "end_object without a begin");
    has_items_.pop_back();
    text_ += '}';
    return *this;
}

JsonWriter& JsonWriter::end_array() {
    DSL_CHECK(!has_items_.empty() && !is_after_key_, "end_array without a begin");
    has_items_.pop_back();
    text_ += ']';
    return *this;
}

JsonWriter& JsonWriter::key(std::string_view name) {
    DSL_CHECK(!has_items_.empty() && !is_after_key_, "key '{}' outside an object", name);
    separate();
    text_ += json_quote(name);
    text_ += form_ == Form::kCompact ? ":" : ": ";
    is_after_key_ = true;
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
    DSL_CHECK(has_items_.empty() && !is_after_key_, "an object or array is still open");
    return text_;
}

}  // namespace dslaunch
