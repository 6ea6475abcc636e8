#include "text/chat/chat_messages.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <initializer_list>
#include <optional>
#include <utility>

#include "base/text.h"
#include "text/chat_template/values/json_text.h"
#include "text/chat_template/values/members.h"

namespace dslaunch::text {
namespace {

using jinja::Value;
using jinja::ValueKind;

constexpr size_t kShownWordMax = 40;
// The role of a speaker whose `value` holds tool calls.
constexpr std::string_view kCaller = "caller";

// A word that rows use for a speaker, and the role that templates use for it.
struct SpeakerRole {
    std::string_view from, role;
};
constexpr std::array<SpeakerRole, 21> kSpeakers = {{
    {"human", "user"},          {"user", "user"},
    {"prompter", "user"},       {"gpt", "assistant"},
    {"assistant", "assistant"}, {"chatgpt", "assistant"},
    {"bing", "assistant"},      {"bard", "assistant"},
    {"bot", "assistant"},       {"chatbot", "assistant"},
    {"ai", "assistant"},        {"model", "assistant"},
    {"system", "system"},       {"tool", "tool"},
    {"function", "tool"},       {"function_response", "tool"},
    {"tool_response", "tool"},  {"observation", "tool"},
    {"function_call", kCaller}, {"function-call", kCaller},
    {"tool_call", kCaller},
}};

// The keys with which a message says whether it is learned. OpenAI uses one of them, axolotl two,
// ms-swift one, and verl two.
constexpr std::array<std::string_view, 6> kLearnKeys = {"weight", "train",     "training",
                                                        "loss",   "trainable", "loss_mask"};
// The keys with which a message says that only a part of it is learned, or that its parts have
// different weights.
constexpr std::array<std::string_view, 5> kPartKeys = {"train_detail", "training_detail",
                                                       "loss_scale", "loss_weight", "masked"};

// The keys of a question and its answer in one object.
struct TurnKeys {
    std::string_view question, answer;
};
constexpr std::array<TurnKeys, 6> kTurnKeys = {{{"input", "output"},
                                                {"human", "assistant"},
                                                {"user", "assistant"},
                                                {"human", "gpt"},
                                                {"prompt", "response"},
                                                {"question", "answer"}}};

std::string shown_word(std::string_view word) {
    const std::string text = printable(word.substr(0, kShownWordMax));
    return fmt::format("\"{}{}\"", text, word.size() > kShownWordMax ? "…" : "");
}

const Value* find(const Value& message, std::string_view key) {
    const Value* value = jinja::member(message, key);
    return value == nullptr || value->is(ValueKind::kNone) ? nullptr : value;
}

const SpeakerRole* speaker_of(std::string_view word) {
    const std::string known = lower(word);
    const auto found = std::ranges::find(kSpeakers, known, &SpeakerRole::from);
    return found == kSpeakers.end() ? nullptr : found;
}

// Returns ENTRIES, followed by the entries of MESSAGE whose keys are not in LEFT_OUT.
Value with_entries(std::vector<jinja::Entry> entries, const Value& message,
                   std::initializer_list<std::string_view> left_out) {
    for (const jinja::Entry& entry : message.dict().entries)
        if (std::ranges::count(left_out, entry.first.text()) == 0) entries.push_back(entry);
    return jinja::plain_dict(std::move(entries));
}

// Returns CALL as a tool call in OpenAI's form. CALL has a name, and arguments or parameters.
Value tool_call_of(const Value& call, const std::string& where) {
    const char* const due = ": expected a tool call, an object with name and arguments";
    if (!call.is(ValueKind::kDict)) throw RowFault(where + due);
    const Value* name = find(call, "name");
    const Value* arguments = find(call, "arguments");
    if (arguments == nullptr) arguments = find(call, "parameters");
    if (name == nullptr || !name->is(ValueKind::kText) || arguments == nullptr)
        throw RowFault(where + due);
    const Value function = jinja::plain_dict(
        {{jinja::plain_text("name"), *name}, {jinja::plain_text("arguments"), *arguments}});
    return jinja::plain_dict({{jinja::plain_text("type"), jinja::plain_text("function")},
                              {jinja::plain_text("function"), function}});
}

// Returns the tool calls in VALUE, which is an object, a list of objects, or a string that has the
// object or the list as JSON.
Value tool_calls_of(const Value& value, const std::string& where) {
    Value held = value;
    if (held.is(ValueKind::kText)) {
        try {
            held = jinja::value_of_json(held.text());
        } catch (const jinja::Fault& fault) {
            throw RowFault(
                fmt::format("{}: expected tool calls as JSON: {}", where, printable(fault.what())));
        }
    }
    jinja::Values calls;
    if (held.is(ValueKind::kList)) {
        for (const Value& call : held.items()) calls.push_back(tool_call_of(call, where));
    } else {
        calls.push_back(tool_call_of(held, where));
    }
    return jinja::plain_list(std::move(calls));
}

Value message_of_speaker(const Value& turn, const std::string& where) {
    const Value* from = find(turn, "from");
    const Value* value = find(turn, "value");
    if (value == nullptr) value = find(turn, "content");
    if (from == nullptr || !from->is(ValueKind::kText))
        throw RowFault(where + ".from: expected a string, such as \"human\"");
    if (value == nullptr || !value->is(ValueKind::kText))
        throw RowFault(where + ".value: expected a string");
    const SpeakerRole* speaker = speaker_of(from->text());
    if (speaker == nullptr)
        throw RowFault(
            fmt::format("{}.from: {} is not a known speaker; use human, gpt, system or tool", where,
                        shown_word(from->text())));
    std::vector<jinja::Entry> entries;
    if (speaker->role == kCaller) {
        entries = {{jinja::plain_text("role"), jinja::plain_text("assistant")},
                   {jinja::plain_text("content"), jinja::plain_text("")},
                   {jinja::plain_text("tool_calls"), tool_calls_of(*value, where + ".value")}};
    } else {
        entries = {{jinja::plain_text("role"), jinja::plain_text(speaker->role)},
                   {jinja::plain_text("content"), *value}};
    }
    return with_entries(std::move(entries), turn,
                        {"from", "value", "role", "content", "tool_calls"});
}

// Returns MESSAGE as templates expect it: with a role that they know, and with OpenAI's earlier
// `function_call` as `tool_calls`.
Value message_of_role(const Value& message, const std::string& where) {
    const Value* role = find(message, "role");
    if (role == nullptr || !role->is(ValueKind::kText)) return message;
    const SpeakerRole* speaker = speaker_of(role->text());
    // Roles such as "observation" are not renamed, because a template may know them.
    const bool is_renamed = speaker != nullptr && speaker->role != role->text() &&
                            (speaker->role == "user" || speaker->role == "assistant" ||
                             speaker->role == "system" || speaker->from == "function");
    const Value* call = find(message, "function_call");
    const bool calls = call != nullptr && find(message, "tool_calls") == nullptr;
    if (!is_renamed && !calls) return message;
    std::vector<jinja::Entry> entries = {
        {jinja::plain_text("role"), is_renamed ? jinja::plain_text(speaker->role) : *role}};
    const Value* content = jinja::member(message, "content");
    if (content != nullptr) entries.emplace_back(jinja::plain_text("content"), *content);
    if (!calls) return with_entries(std::move(entries), message, {"role", "content"});
    entries.emplace_back(jinja::plain_text("tool_calls"),
                         tool_calls_of(*call, where + ".function_call"));
    return with_entries(std::move(entries), message,
                        {"role", "content", "tool_calls", "function_call"});
}

// Returns the two messages of TURN, or no messages if TURN is not a question with its answer.
jinja::Values messages_of_turn(const Value& turn) {
    for (const TurnKeys& keys : kTurnKeys) {
        const Value* question = find(turn, keys.question);
        const Value* answer = find(turn, keys.answer);
        if (question != nullptr && question->is(ValueKind::kText) && answer != nullptr &&
            answer->is(ValueKind::kText))
            return {message_of("user", question->text()),
                    with_entries({{jinja::plain_text("role"), jinja::plain_text("assistant")},
                                  {jinja::plain_text("content"), *answer}},
                                 turn, {keys.question, keys.answer, "role", "content"})};
    }
    return {};
}

void add_messages(jinja::Values& messages, const Value& one, const std::string& where) {
    if (one.is(ValueKind::kText)) {
        messages.push_back(message_of(messages.size() % 2 == 0 ? "user" : "assistant", one.text()));
        return;
    }
    if (!one.is(ValueKind::kDict))
        throw RowFault(where + ": expected an object with role and content");
    if (jinja::member(one, "role") != nullptr) {
        messages.push_back(message_of_role(one, where));
    } else if (jinja::member(one, "from") != nullptr) {
        messages.push_back(message_of_speaker(one, where));
    } else if (const jinja::Values turn = messages_of_turn(one); !turn.empty()) {
        messages.insert(messages.end(), turn.begin(), turn.end());
    } else {
        messages.push_back(one);
    }
}

// Returns the value of KEY as a bool: true for 1 or true, false for 0 or false. Returns nothing if
// MESSAGE does not have KEY.
std::optional<bool> flag_of(const Value& message, std::string_view key) {
    const Value* value = find(message, key);
    if (value == nullptr || !value->is_number()) return std::nullopt;
    return value->as_double() != 0;
}

// Checks the keys of MESSAGE that say whether it is learned.
void check_learning(const Value& message, const std::string& role, const std::string& where) {
    for (const std::string_view key : kLearnKeys) {
        const Value* value = find(message, key);
        if (value == nullptr) continue;
        if (!value->is_number() || (value->as_double() != 0 && value->as_double() != 1))
            throw RowFault(fmt::format(
                "{}.{}: expected 0 or 1, or false or true: an answer is either learned or not",
                where, key));
        if (value->as_double() == 1 && role != "assistant")
            throw RowFault(
                fmt::format("{}.{}: a message of {} is marked as learned, but only the assistant's "
                            "messages can be learned",
                            where, key, shown_word(role)));
    }
    for (const std::string_view key : kPartKeys)
        if (find(message, key) != nullptr)
            throw RowFault(
                fmt::format("{}.{}: a message can only be learned as a whole or not at all; set "
                            "`train` to true or false",
                            where, key));
}

void check_part(const Value& part, const std::string& where) {
    if (!part.is(ValueKind::kDict))
        throw RowFault(where + ": expected an object with type and text");
    const Value* type = jinja::member(part, "type");
    if (type == nullptr || !type->is(ValueKind::kText))
        throw RowFault(where + ".type: expected a string, such as \"text\"");
    if (type->text() != "text")
        throw RowFault(fmt::format("{}.type: {} is not text, and only text can be trained", where,
                                   shown_word(type->text())));
    const Value* text = jinja::member(part, "text");
    if (text == nullptr || !text->is(ValueKind::kText))
        throw RowFault(where + ".text: expected a string");
}

void check_message(const Value& message, const std::string& where) {
    const Value* role = jinja::member(message, "role");
    if (role == nullptr || !role->is(ValueKind::kText) || role->text().empty())
        throw RowFault(where + ".role: expected a string, such as \"user\"");
    const Value* content = jinja::member(message, "content");
    const Value* calls = jinja::member(message, "tool_calls");
    const bool has_calls = calls != nullptr && !calls->is(ValueKind::kNone);
    check_learning(message, role->text(), where);
    if (has_calls && !calls->is(ValueKind::kList))
        throw RowFault(where + ".tool_calls: expected a list");
    if (content == nullptr || content->is(ValueKind::kNone)) {
        if (has_calls) return;
        throw RowFault(where + ".content: expected a string, or tool_calls in the same message");
    }
    if (content->is(ValueKind::kText)) return;
    // The result of a tool may be an object.
    if (role->text() == "tool" && content->is(ValueKind::kDict)) return;
    if (!content->is(ValueKind::kList))
        throw RowFault(where + ".content: expected a string or a list of parts");
    for (size_t i = 0; i < content->items().size(); ++i)
        check_part(content->items()[i], fmt::format("{}.content[{}]", where, i));
}

}  // namespace

Value message_of(std::string_view role, std::string_view content) {
    return jinja::plain_dict({{jinja::plain_text("role"), jinja::plain_text(role)},
                              {jinja::plain_text("content"), jinja::plain_text(content)}});
}

std::string content_text(const Value& message) {
    const Value* content = jinja::member(message, "content");
    if (content == nullptr) return "";
    if (content->is(ValueKind::kText)) return content->text();
    std::string text;
    if (content->is(ValueKind::kList))
        for (const Value& part : content->items())
            if (const std::string* piece = jinja::text_member(part, "text"); piece != nullptr)
                text += *piece;
    return text;
}

const std::string& role_of(const Value& message) {
    return jinja::member(message, "role")->text();
}

bool is_learned(const Value& message) {
    return std::ranges::all_of(
        kLearnKeys, [&](std::string_view key) { return flag_of(message, key).value_or(true); });
}

jinja::Values messages_of(const Value& value, const std::string& where) {
    if (value.is(ValueKind::kText) && trim(value.text()).starts_with('['))
        throw RowFault(
            fmt::format("{0}: expected a list of messages, found a string that contains one; in "
                        "Python: row[\"{0}\"] = ast.literal_eval(row[\"{0}\"]), or json.loads",
                        where));
    if (!value.is(ValueKind::kList)) throw RowFault(where + ": expected a list of messages");
    if (value.items().empty()) throw RowFault(where + ": the list contains no message");
    jinja::Values messages;
    for (size_t i = 0; i < value.items().size(); ++i) {
        const std::string place = fmt::format("{}[{}]", where, i);
        const size_t before = messages.size();
        add_messages(messages, value.items()[i], place);
        for (size_t at = before; at < messages.size(); ++at) check_message(messages[at], place);
    }
    return messages;
}

jinja::Values history_of(const Value& value, const std::string& where) {
    jinja::Values messages;
    const auto refuse = [&] { throw RowFault(where + ": expected a list of [question, answer]"); };
    if (!value.is(ValueKind::kList)) refuse();
    for (const Value& turn : value.items()) {
        if (!turn.is(ValueKind::kList) || turn.items().size() != 2) refuse();
        for (const Value& text : turn.items()) {
            if (!text.is(ValueKind::kText)) refuse();
            add_messages(messages, text, where);
        }
    }
    return messages;
}

}  // namespace dslaunch::text
