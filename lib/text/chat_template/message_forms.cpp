#include "text/chat_template/message_forms.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/text.h"
#include "text/chat_template/values/json_text.h"
#include "text/chat_template/values/members.h"

namespace dslaunch::text {
namespace {

using jinja::Entry;
using jinja::Value;
using jinja::ValueKind;
using jinja::Values;

// Words that occur in no template.
constexpr std::string_view kWord = "qz7word";
constexpr std::string_view kKey = "qz7key";

constexpr std::string_view kProbeCall = R"([{"id": "qz7call01", "type": "function", "function":
    {"name": "qz7tool", "arguments": {"qz7arg": 1}}}])";
constexpr std::string_view kProbeTools = R"([{"type": "function", "function": {"name": "qz7tool",
    "description": "d", "parameters": {"type": "object", "properties": {"qz7arg": {"type":
    "string", "description": "d"}}, "required": []}}}])";

Value part_of(std::string_view text) {
    return jinja::plain_dict({{jinja::plain_text("type"), jinja::plain_text("text")},
                              {jinja::plain_text("text"), jinja::plain_text(text)}});
}

Value message_with(std::string_view role, Value content) {
    return jinja::plain_dict({{jinja::plain_text("role"), jinja::plain_text(role)},
                              {jinja::plain_text("content"), std::move(content)}});
}

constexpr std::array<BareContent, 3> kBareContents = {BareContent::kAbsent, BareContent::kNull,
                                                      BareContent::kEmpty};

// Adds CONTENT to ENTRIES, which have no content yet.
void add_content(std::vector<Entry>& entries, BareContent content) {
    if (content == BareContent::kAbsent) return;
    entries.emplace_back(jinja::plain_text("content"),
                         content == BareContent::kNull ? Value::none() : jinja::plain_text(""));
}

Value call_with(const Value& arguments, BareContent content) {
    Value call = jinja::value_of_json(kProbeCall).items()[0];
    call = jinja::with_member(
        call, "function",
        jinja::with_member(*jinja::member(call, "function"), "arguments", arguments));
    std::vector<Entry> entries = {{jinja::plain_text("role"), jinja::plain_text("assistant")}};
    add_content(entries, content);
    entries.emplace_back(jinja::plain_text("tool_calls"), jinja::plain_list({call}));
    return jinja::plain_dict(std::move(entries));
}

Value tool_result(Value content) {
    return jinja::plain_dict({{jinja::plain_text("role"), jinja::plain_text("tool")},
                              {jinja::plain_text("name"), jinja::plain_text("qz7tool")},
                              {jinja::plain_text("tool_call_id"), jinja::plain_text("qz7call01")},
                              {jinja::plain_text("content"), std::move(content)}});
}

// Returns a conversation in which ROLE says CONTENT. The contents of the other messages are parts
// or strings. A message that calls a tool has the content BESIDE_CALL, and arguments in a form that
// FORMS allows.
Value conversation(std::string_view role, const Value& content, BareContent beside_call,
                   bool as_parts, const MessageForms& forms) {
    const auto said = [&](const char* who, const char* text) {
        return message_with(
            who, as_parts ? jinja::plain_list({part_of(text)}) : jinja::plain_text(text));
    };
    const Value question = said("user", "q");
    const Value answer = said("assistant", "a");
    if (role == "system") return jinja::plain_list({message_with("system", content), question});
    if (role == "user") return jinja::plain_list({message_with("user", content)});
    if (role == "assistant")
        return jinja::plain_list({question, message_with("assistant", content), question});
    const Value probe = jinja::value_of_json(kProbeCall).items()[0];
    const Value call = in_form(
        call_with(*jinja::member(*jinja::member(probe, "function"), "arguments"), beside_call),
        forms);
    return jinja::plain_list({question, call, tool_result(content), answer});
}

class Prober {
  public:
    explicit Prober(const ProbeRendering& render) : render_(render) {}

    // Returns the forms of content that the template reads in messages of ROLE. REQUIRES: if ROLE
    // is "tool", FORMS already has the forms of arguments.
    ContentForms contents_of(std::string_view role, const MessageForms& forms) const {
        const bool shows_text = shows_content(role, jinja::plain_text(kWord), forms, false);
        const bool shows_parts =
            shows_content(role, jinja::plain_list({part_of(kWord)}), forms, true);
        if (!shows_text && !shows_parts) return {};
        return {shows_text, shows_parts};
    }

    // Sets the forms of arguments. REQUIRES: FORMS already has the forms of the contents of users
    // and assistants.
    void find_arguments(MessageForms& forms) const {
        const Value object =
            jinja::plain_dict({{jinja::plain_text(kKey), jinja::plain_text(kWord)}});
        const std::string json = fmt::format("{{\"{}\": \"{}\"}}", kKey, kWord);
        const bool shows_text = shows_call(
            jinja::plain_text(json), forms,
            [&](const std::string& text) { return text.find(json) != std::string::npos; });
        // An object printed as Python's repr does not count: no model was trained on such text.
        const bool shows_object = shows_call(object, forms, [&](const std::string& text) {
            return text.find(kWord) != std::string::npos &&
                   text.find(fmt::format("'{}'", kKey)) == std::string::npos;
        });
        if (!shows_text && !shows_object) return;
        forms.shows_arguments = true;
        forms.takes_argument_text = shows_text;
        forms.takes_argument_objects = shows_object;
    }

    [[nodiscard]] CallsBecome calls_beside(BareContent content, const MessageForms& forms) const {
        const Value object =
            jinja::plain_dict({{jinja::plain_text(kKey), jinja::plain_text(kWord)}});
        const Value json = jinja::plain_text(fmt::format("{{\"{}\": \"{}\"}}", kKey, kWord));
        CallsBecome best = CallsBecome::kRefused;
        for (const Value& arguments : {object, json})
            for (const bool goes_on : {false, true})
                for (const bool with_tools : {false, true}) {
                    const auto text =
                        render_(called(arguments, content, goes_on, forms), tools_if(with_tools));
                    if (!text) continue;
                    if (text->find(kWord) != std::string::npos) return CallsBecome::kWritten;
                    best = CallsBecome::kLeftOut;
                }
        return best;
    }

  private:
    static Value tools_if(bool with_tools) {
        return with_tools ? jinja::value_of_json(kProbeTools) : Value::none();
    }

    // Returns a conversation with a tool call. If GOES_ON is true, the call's result and an answer
    // follow; otherwise the call is the last message.
    static Value called(const Value& arguments, BareContent content, bool goes_on,
                        const MessageForms& forms) {
        Values messages = {message_with("user", jinja::plain_text("q")),
                           call_with(arguments, content)};
        if (goes_on) {
            messages.push_back(tool_result(jinja::plain_text("r")));
            messages.push_back(message_with("assistant", jinja::plain_text("a")));
        }
        for (Value& message : messages) message = in_form(message, forms);
        return jinja::plain_list(std::move(messages));
    }

    // Renders CONVERSATION with each possible content beside a call, with tools and without.
    // Returns true if SHOWS holds for one of the texts.
    template <typename Conversation, typename Shows>
    bool shows_once(const Conversation& conversation, const Shows& shows) const {
        for (const BareContent beside_call : kBareContents)
            for (const bool with_tools : {false, true}) {
                const auto text = render_(conversation(beside_call), tools_if(with_tools));
                if (text && shows(*text)) return true;
            }
        return false;
    }

    bool shows_content(std::string_view role, const Value& content, const MessageForms& forms,
                       bool is_parts) const {
        const auto has_quoted = [](const std::string& text, char quote) {
            return text.find(fmt::format("{}{}{}", quote, kWord, quote)) != std::string::npos;
        };
        const auto shows = [&](const std::string& text) {
            // If the template prints the list as a whole, the word is in quotes.
            const bool is_whole = is_parts && (has_quoted(text, '\'') || has_quoted(text, '"'));
            return !is_whole && text.find(kWord) != std::string::npos;
        };
        for (const bool as_parts : {false, true})
            if (shows_once(
                    [&](BareContent beside_call) {
                        return conversation(role, content, beside_call, as_parts, forms);
                    },
                    shows))
                return true;
        return false;
    }

    template <typename Shows>
    bool shows_call(const Value& arguments, const MessageForms& forms, const Shows& shows) const {
        for (const bool goes_on : {false, true})
            if (shows_once(
                    [&](BareContent beside_call) {
                        return called(arguments, beside_call, goes_on, forms);
                    },
                    shows))
                return true;
        return false;
    }

    const ProbeRendering& render_;
};

const ContentForms& contents_of(const MessageForms& forms, std::string_view role) {
    if (role == "system" || role == "developer") return forms.system;
    if (role == "assistant") return forms.assistant;
    if (role == "tool" || role == "ipython" || role == "function") return forms.tool;
    return forms.user;
}

// Returns the text of a content part. If the part is from an answer that a client sends back, it
// may be a refusal.
const std::string* text_of_part(const Value& part) {
    const std::string* text = jinja::text_member(part, "text");
    return text != nullptr ? text : jinja::text_member(part, "refusal");
}

// Returns CONTENT in a form that FORMS allows. A list with anything but text stays unchanged.
Value content_in_form(const Value& content, const ContentForms& forms) {
    if (content.is(ValueKind::kText) && !forms.takes_text && forms.takes_parts)
        return jinja::plain_list({part_of(content.text())});
    if (!content.is(ValueKind::kList)) return content;
    Values parts;
    std::string joined;
    for (const Value& part : content.items()) {
        const std::string* text = text_of_part(part);
        if (text == nullptr) return content;
        joined += *text;
        const std::string* type = jinja::text_member(part, "type");
        parts.push_back(type != nullptr && *type == "text" ? part : part_of(*text));
    }
    return forms.takes_parts ? jinja::plain_list(std::move(parts)) : jinja::plain_text(joined);
}

Value arguments_in_form(const Value& arguments, const MessageForms& forms,
                        const std::string& name) {
    if (!arguments.is(ValueKind::kText)) {
        if (forms.takes_argument_objects || arguments.is(ValueKind::kNone)) return arguments;
        jinja::Meter meter{jinja::Limits{}};
        return jinja::plain_text(jinja::json_of(meter, {}, arguments));
    }
    if (forms.takes_argument_text) return arguments;
    if (trim(arguments.text()).empty()) return jinja::plain_dict({});
    std::string why = "they are not an object";
    try {
        Value object = jinja::value_of_json(arguments.text());
        if (object.is(ValueKind::kDict)) return object;
        if (object.is(ValueKind::kNone)) return jinja::plain_dict({});
    } catch (const jinja::Fault& fault) {
        why = fault.what();
    }
    throw jinja::Fault(
        fmt::format("the template needs the arguments of the call of `{}` as a JSON object: {}",
                    printable(name), printable(why)));
}

Value call_in_form(const Value& call, const MessageForms& forms) {
    const Value* held = jinja::member(call, "function");
    const Value& function = held != nullptr && held->is(ValueKind::kDict) ? *held : call;
    const Value* arguments = jinja::member(function, "arguments");
    if (arguments == nullptr) return call;
    const std::string* name = jinja::text_member(function, "name");
    const Value changed = jinja::with_member(
        function, "arguments", arguments_in_form(*arguments, forms, name != nullptr ? *name : ""));
    return &function == &call ? changed : jinja::with_member(call, "function", changed);
}

Value calls_in_form(const Value& calls, const MessageForms& forms) {
    if (!calls.is(ValueKind::kList)) return calls;
    Values changed;
    for (const Value& call : calls.items()) changed.push_back(call_in_form(call, forms));
    return jinja::plain_list(std::move(changed));
}

// Gives a message that calls tools and has no text a content with which the template writes the
// calls: absent, null or empty. ENTRIES are the message's entries.
void settle_bare_content(std::vector<Entry>& entries, const MessageForms& forms) {
    if (!forms.bare_calls) return;
    const auto become = [&](BareContent content) {
        return (*forms.bare_calls)[static_cast<size_t>(content)];
    };
    const auto held = std::ranges::find_if(
        entries, [](const Entry& entry) { return jinja::has_name(entry, "content"); });
    BareContent settled = BareContent::kAbsent;  // null counts as absent, as in transformers
    if (held != entries.end() && !held->second.is(ValueKind::kNone)) {
        if (!held->second.is(ValueKind::kText) || !held->second.text().empty()) return;
        settled = BareContent::kEmpty;
    }
    if (become(settled) != CallsBecome::kWritten) {
        const auto better = std::ranges::find_if(kBareContents, [&](BareContent content) {
            return become(content) == CallsBecome::kWritten;
        });
        if (better != kBareContents.end())
            settled = *better;
        else if (become(settled) == CallsBecome::kRefused &&
                 std::ranges::count(*forms.bare_calls, CallsBecome::kLeftOut) > 0)
            throw jinja::Fault(
                "it has only a tool call, but the template does not write tool calls: give the "
                "message a content, or remove the message and the tool's answer");
    }
    if (held != entries.end()) entries.erase(held);
    add_content(entries, settled);
}

}  // namespace

MessageForms find_message_forms(std::string_view source, const ProbeRendering& render) {
    MessageForms forms;
    const Prober prober(render);
    forms.system = prober.contents_of("system", forms);
    forms.user = prober.contents_of("user", forms);
    forms.assistant = prober.contents_of("assistant", forms);
    prober.find_arguments(forms);
    forms.tool = prober.contents_of("tool", forms);
    std::array<CallsBecome, 3> bare_calls{};
    for (const BareContent content : kBareContents)
        bare_calls[static_cast<size_t>(content)] = prober.calls_beside(content, forms);
    forms.bare_calls = bare_calls;
    forms.knows_developer = source.find("'developer'") != std::string_view::npos ||
                            source.find("\"developer\"") != std::string_view::npos;
    return forms;
}

Value in_form(const Value& message, const MessageForms& forms) {
    const std::string* held_role = jinja::text_member(message, "role");
    const std::string role = held_role != nullptr ? *held_role : "";
    std::vector<Entry> entries = message.dict().entries;
    const auto at = [&](std::string_view key) {
        return std::ranges::find_if(
            entries, [&](const Entry& entry) { return jinja::has_name(entry, key); });
    };
    const auto calls = at("tool_calls");
    const bool is_list = calls != entries.end() && calls->second.is(ValueKind::kList);
    if (is_list && !calls->second.items().empty()) {
        settle_bare_content(entries, forms);
    } else {
        if (is_list) entries.erase(calls);
        if (role == "assistant" && at("content") == entries.end())
            add_content(entries, BareContent::kEmpty);
    }
    for (auto& [key, value] : entries) {
        if (!key.is(ValueKind::kText)) continue;
        if (key.text() == "content") value = content_in_form(value, contents_of(forms, role));
        if (key.text() == "tool_calls") value = calls_in_form(value, forms);
        if (key.text() == "role" && role == "developer" && !forms.knows_developer)
            value = jinja::plain_text("system");
    }
    return jinja::plain_dict(std::move(entries));
}

}  // namespace dslaunch::text
