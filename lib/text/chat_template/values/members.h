// Messages and other values that belong to no rendering: their making and their members.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/chat_template/values/value.h"

namespace dslaunch::text::jinja {

[[nodiscard]] inline Value plain_text(std::string_view text) {
    return new_text(nullptr, std::string(text));
}
[[nodiscard]] inline Value plain_list(Values items) {
    return new_list(nullptr, std::move(items));
}
[[nodiscard]] inline Value plain_dict(std::vector<Entry> entries) {
    return new_dict(nullptr, std::move(entries));
}

// Returns the member KEY of VALUE, nullptr without one; VALUE need not be a dict.
[[nodiscard]] const Value* member(const Value& value, std::string_view key);
// Returns the text of that member, nullptr without one and where it is not a text.
[[nodiscard]] const std::string* text_member(const Value& value, std::string_view key);
// Returns true if the key of ENTRY is the text KEY.
[[nodiscard]] bool has_name(const Entry& entry, std::string_view key);
// Returns DICT with VALUE as its member KEY, which it has.
[[nodiscard]] Value with_member(const Value& dict, std::string_view key, const Value& value);
// Returns DICT without the members KEYS.
[[nodiscard]] Value without_members(const Value& dict, std::span<const std::string_view> keys);

}  // namespace dslaunch::text::jinja
