// Functions that make values without counting their memory, for example the value of a chat
// message. Also functions that read the members of a value.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/chat_template/values/values.h"

namespace dslaunch::text::jinja {

// Return values that no meter counts, so they may be used in any rendering.
[[nodiscard]] inline Value plain_text(std::string_view text) {
    return new_text(nullptr, std::string(text));
}
[[nodiscard]] inline Value plain_list(Values items) {
    return new_list(nullptr, std::move(items));
}
[[nodiscard]] inline Value plain_dict(std::vector<Entry> entries) {
    return new_dict(nullptr, std::move(entries));
}

// Returns the member KEY of VALUE, or nullptr if there is none; VALUE need not be a dict.
[[nodiscard]] const Value* member(const Value& value, std::string_view key);
// Returns the text of the member KEY, or nullptr if there is none or it is not a string.
[[nodiscard]] const std::string* text_member(const Value& value, std::string_view key);
// Returns true if the key of ENTRY is the string KEY.
[[nodiscard]] bool has_name(const Entry& entry, std::string_view key);
// Returns DICT with VALUE as its member KEY. REQUIRES: DICT has a member KEY.
[[nodiscard]] Value with_member(const Value& dict, std::string_view key, const Value& value);
// Returns DICT without the members KEYS.
[[nodiscard]] Value without_members(const Value& dict, std::span<const std::string_view> keys);

}  // namespace dslaunch::text::jinja
