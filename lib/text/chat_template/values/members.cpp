#include "text/chat_template/values/members.h"

#include <algorithm>

#include "text/chat_template/values/compare.h"

namespace dslaunch::text::jinja {

const Value* member(const Value& value, std::string_view key) {
    return value.is(ValueKind::kDict) ? find_key(value.dict(), key) : nullptr;
}

const std::string* text_member(const Value& value, std::string_view key) {
    const Value* held = member(value, key);
    return held != nullptr && held->is(ValueKind::kText) ? &held->text() : nullptr;
}

bool has_name(const Entry& entry, std::string_view key) {
    return entry.first.is(ValueKind::kText) && entry.first.text() == key;
}

Value with_member(const Value& dict, std::string_view key, const Value& value) {
    std::vector<Entry> entries = dict.dict().entries;
    for (Entry& entry : entries)
        if (has_name(entry, key)) entry.second = value;
    return plain_dict(std::move(entries));
}

Value without_members(const Value& dict, std::span<const std::string_view> keys) {
    std::vector<Entry> entries = dict.dict().entries;
    std::erase_if(entries, [&](const Entry& entry) {
        return std::ranges::any_of(keys,
                                   [&](std::string_view key) { return has_name(entry, key); });
    });
    return plain_dict(std::move(entries));
}

}  // namespace dslaunch::text::jinja
