#include "tokens/chat/chat_messages.h"

#include "tokens/template/values/compare.h"

#include "base/text.h"

#include <fmt/format.h>

#include <array>

namespace dslaunch::tokens {
namespace {

using jinja::Kind;
using jinja::Value;

constexpr size_t kShownWordMax = 40;

// The names of ShareGPT's rows for who speaks.
struct SpeakerRole {
    std::string_view from, role;
};
constexpr std::array<SpeakerRole, 13> kSpeakers = {{
    {"human", "user"},
    {"user", "user"},
    {"gpt", "assistant"},
    {"assistant", "assistant"},
    {"chatgpt", "assistant"},
    {"bing", "assistant"},
    {"bard", "assistant"},
    {"model", "assistant"},
    {"system", "system"},
    {"tool", "tool"},
    {"function", "tool"},
    {"function_response", "tool"},
    {"observation", "tool"},
}};

std::string shown_word(std::string_view word) {
    const std::string text = printable(word.substr(0, kShownWordMax));
    return fmt::format("\"{}{}\"", text, word.size() > kShownWordMax ? "…" : "");
}

Value plain(std::string_view text) {
    return jinja::new_text(nullptr, std::string(text));
}

Value message_of_speaker(const Value& turn, const std::string& where) {
    const Value* from = jinja::find_key(turn.dict(), "from");
    const Value* value = jinja::find_key(turn.dict(), "value");
    if (from == nullptr || !from->is(Kind::kText))
        throw RowFault(where + ".from: a text is due, as \"human\"");
    if (value == nullptr || !value->is(Kind::kText))
        throw RowFault(where + ".value: a text is due");
    for (const SpeakerRole& speaker : kSpeakers)
        if (speaker.from == from->text()) return message_of(speaker.role, value->text());
    throw RowFault(fmt::format("{}.from: {} is nobody known: human, gpt, system or tool", where,
                               shown_word(from->text())));
}

void check_part(const Value& part, const std::string& where) {
    if (!part.is(Kind::kDict)) throw RowFault(where + ": an object with type and text is due");
    const Value* type = jinja::find_key(part.dict(), "type");
    if (type == nullptr || !type->is(Kind::kText))
        throw RowFault(where + ".type: a text is due, as \"text\"");
    if (type->text() != "text")
        throw RowFault(fmt::format("{}.type: {} is no text, and only text can be trained", where,
                                   shown_word(type->text())));
    const Value* text = jinja::find_key(part.dict(), "text");
    if (text == nullptr || !text->is(Kind::kText)) throw RowFault(where + ".text: a text is due");
}

void check_message(const Value& message, const std::string& where) {
    const Value* role = jinja::find_key(message.dict(), "role");
    if (role == nullptr || !role->is(Kind::kText) || role->text().empty())
        throw RowFault(where + ".role: a text is due, as \"user\"");
    const Value* content = jinja::find_key(message.dict(), "content");
    const Value* calls = jinja::find_key(message.dict(), "tool_calls");
    const bool has_calls = calls != nullptr && !calls->is(Kind::kNone);
    if (has_calls && !calls->is(Kind::kList)) throw RowFault(where + ".tool_calls: a list is due");
    if (content == nullptr || content->is(Kind::kNone)) {
        if (has_calls) return;
        throw RowFault(where + ".content: a text is due, or tool_calls beside it");
    }
    if (content->is(Kind::kText)) return;
    // What a tool gives may be an object of its own.
    if (role->text() == "tool" && content->is(Kind::kDict)) return;
    if (!content->is(Kind::kList))
        throw RowFault(where + ".content: a text or a list of parts is due");
    for (size_t i = 0; i < content->items().size(); ++i)
        check_part(content->items()[i], fmt::format("{}.content[{}]", where, i));
}

}  // namespace

Value message_of(std::string_view role, std::string_view content) {
    return jinja::new_dict(nullptr,
                           {{plain("role"), plain(role)}, {plain("content"), plain(content)}});
}

std::string content_text(const Value& message) {
    const Value* content = jinja::find_key(message.dict(), "content");
    if (content == nullptr) return "";
    if (content->is(Kind::kText)) return content->text();
    std::string text;
    if (content->is(Kind::kList))
        for (const Value& part : content->items())
            if (part.is(Kind::kDict))
                if (const Value* piece = jinja::find_key(part.dict(), "text");
                    piece != nullptr && piece->is(Kind::kText))
                    text += piece->text();
    return text;
}

const std::string& role_of(const Value& message) {
    return jinja::find_key(message.dict(), "role")->text();
}

jinja::Values messages_of(const Value& value, const std::string& where) {
    if (!value.is(Kind::kList)) throw RowFault(where + ": a list of messages is due");
    if (value.items().empty()) throw RowFault(where + ": the list has no message");
    jinja::Values messages;
    for (size_t i = 0; i < value.items().size(); ++i) {
        const Value& message = value.items()[i];
        const std::string place = fmt::format("{}[{}]", where, i);
        if (!message.is(Kind::kDict))
            throw RowFault(place + ": an object with role and content is due");
        const bool has_speaker = jinja::find_key(message.dict(), "role") == nullptr &&
                                 jinja::find_key(message.dict(), "from") != nullptr;
        messages.push_back(has_speaker ? message_of_speaker(message, place) : message);
        check_message(messages.back(), place);
    }
    return messages;
}

}  // namespace dslaunch::tokens
