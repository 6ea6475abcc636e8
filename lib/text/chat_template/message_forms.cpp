#include "text/chat_template/message_forms.h"

#include "text/chat_template/values/compare.h"
#include "text/chat_template/values/json_text.h"

#include "base/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

namespace dslaunch::text {
namespace {

using jinja::Entry;
using jinja::Kind;
using jinja::Value;
using jinja::Values;

// Words that no template has.
constexpr std::string_view kWord = "qz7word";
constexpr std::string_view kKey = "qz7key";

constexpr std::string_view kProbeCall = R"([{"id": "qz7call01", "type": "function", "function":
    {"name": "qz7tool", "arguments": {"qz7arg": 1}}}])";
constexpr std::string_view kProbeTools = R"([{"type": "function", "function": {"name": "qz7tool",
    "description": "d", "parameters": {"type": "object", "properties": {"qz7arg": {"type":
    "string", "description": "d"}}, "required": []}}}])";

Value plain(std::string_view text) {
    return jinja::new_text(nullptr, std::string(text));
}

Value list_of(Values items) {
    return jinja::new_list(nullptr, std::move(items));
}

Value dict_of(std::vector<Entry> entries) {
    return jinja::new_dict(nullptr, std::move(entries));
}

Value part_of(std::string_view text) {
    return dict_of({{plain("type"), plain("text")}, {plain("text"), plain(text)}});
}

const Value* find(const Value& dict, std::string_view key) {
    return dict.is(Kind::kDict) ? jinja::find_key(dict.dict(), key) : nullptr;
}

Value with(const Value& dict, std::string_view key, Value value) {
    std::vector<Entry> entries = dict.dict().entries;
    for (auto& [name, held] : entries)
        if (name.is(Kind::kText) && name.text() == key) held = value;
    return dict_of(std::move(entries));
}

Value message_with(std::string_view role, Value content) {
    return dict_of({{plain("role"), plain(role)}, {plain("content"), std::move(content)}});
}

constexpr std::array<BareContent, 3> kBareContents = {BareContent::kAbsent, BareContent::kNull,
                                                      BareContent::kEmpty};

// Puts CONTENT into ENTRIES, which have none.
void add_content(std::vector<Entry>& entries, BareContent content) {
    if (content == BareContent::kAbsent) return;
    entries.emplace_back(plain("content"),
                         content == BareContent::kNull ? Value::none() : plain(""));
}

Value call_with(const Value& arguments, BareContent content) {
    Value call = jinja::value_of_json(kProbeCall).items()[0];
    call = with(call, "function", with(*find(call, "function"), "arguments", arguments));
    std::vector<Entry> entries = {{plain("role"), plain("assistant")}};
    add_content(entries, content);
    entries.emplace_back(plain("tool_calls"), list_of({call}));
    return dict_of(std::move(entries));
}

Value tool_result(Value content) {
    return dict_of({{plain("role"), plain("tool")},
                    {plain("name"), plain("qz7tool")},
                    {plain("tool_call_id"), plain("qz7call01")},
                    {plain("content"), std::move(content)}});
}

// A conversation in which ROLE says CONTENT, and the others speak as parts or as texts. A call has
// arguments of FORMS.
Value conversation(std::string_view role, const Value& content, BareContent beside_call,
                   bool as_parts, const MessageForms& forms) {
    const auto said = [&](const char* who, const char* text) {
        return message_with(who, as_parts ? list_of({part_of(text)}) : plain(text));
    };
    const Value question = said("user", "q");
    const Value answer = said("assistant", "a");
    if (role == "system") return list_of({message_with("system", content), question});
    if (role == "user") return list_of({message_with("user", content)});
    if (role == "assistant")
        return list_of({question, message_with("assistant", content), question});
    const Value probe = jinja::value_of_json(kProbeCall).items()[0];
    const Value call =
        in_form(call_with(*find(*find(probe, "function"), "arguments"), beside_call), forms);
    return list_of({question, call, tool_result(content), answer});
}

class Prober {
  public:
    explicit Prober(const ProbeRendering& render) : render_(render) {}

    // REQUIRES: FORMS has the forms of arguments, if ROLE is a tool's.
    ContentForms contents_of(std::string_view role, const MessageForms& forms) const {
        const bool shows_text = shows_content(role, plain(kWord), forms, false);
        const bool shows_parts = shows_content(role, list_of({part_of(kWord)}), forms, true);
        if (!shows_text && !shows_parts) return {};
        return {shows_text, shows_parts};
    }

    // REQUIRES: FORMS has the forms of the contents of users and assistants.
    void find_arguments(MessageForms& forms) const {
        const Value object = dict_of({{plain(kKey), plain(kWord)}});
        const std::string json = fmt::format("{{\"{}\": \"{}\"}}", kKey, kWord);
        const bool shows_text = shows_call(plain(json), forms, [&](const std::string& text) {
            return text.find(json) != std::string::npos;
        });
        // Python's text of the object is none that a model was trained on.
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
        const Value object = dict_of({{plain(kKey), plain(kWord)}});
        const Value json = plain(fmt::format("{{\"{}\": \"{}\"}}", kKey, kWord));
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

    // Returns a conversation with a call, at its end or before its result and an answer.
    static Value called(const Value& arguments, BareContent content, bool goes_on,
                        const MessageForms& forms) {
        Values messages = {message_with("user", plain("q")), call_with(arguments, content)};
        if (goes_on) {
            messages.push_back(tool_result(plain("r")));
            messages.push_back(message_with("assistant", plain("a")));
        }
        for (Value& message : messages) message = in_form(message, forms);
        return list_of(std::move(messages));
    }

    // Returns true if SHOWS holds for a text that the template makes of CONVERSATION(the content
    // beside a call), with tools or without.
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
            // A list that is printed as a whole quotes the word.
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

// The text of a part: of one that a client sent, or of a part of an answer that came back.
const Value* text_of_part(const Value& part) {
    for (const char* key : {"text", "refusal"})
        if (const Value* text = find(part, key); text != nullptr && text->is(Kind::kText))
            return text;
    return nullptr;
}

// Returns CONTENT in a form of FORMS; a list that holds anything but texts stays.
Value content_in_form(const Value& content, const ContentForms& forms) {
    if (content.is(Kind::kText) && !forms.takes_text && forms.takes_parts)
        return list_of({part_of(content.text())});
    if (!content.is(Kind::kList)) return content;
    Values parts;
    std::string joined;
    for (const Value& part : content.items()) {
        const Value* text = text_of_part(part);
        if (text == nullptr) return content;
        joined += text->text();
        const Value* type = find(part, "type");
        const bool is_plain = type != nullptr && type->is(Kind::kText) && type->text() == "text";
        parts.push_back(is_plain ? part : part_of(text->text()));
    }
    return forms.takes_parts ? list_of(std::move(parts)) : plain(joined);
}

Value arguments_in_form(const Value& arguments, const MessageForms& forms,
                        const std::string& name) {
    if (!arguments.is(Kind::kText)) {
        if (forms.takes_argument_objects || arguments.is(Kind::kNone)) return arguments;
        jinja::Meter meter{jinja::Limits{}};
        return plain(jinja::json_of(meter, {}, arguments));
    }
    if (forms.takes_argument_text) return arguments;
    if (trim(arguments.text()).empty()) return dict_of({});
    std::string why = "they are no object";
    try {
        Value object = jinja::value_of_json(arguments.text());
        if (object.is(Kind::kDict)) return object;
        if (object.is(Kind::kNone)) return dict_of({});
    } catch (const jinja::Fault& fault) {
        why = fault.what();
    }
    throw jinja::Fault(fmt::format(
        "the arguments of the call of `{}` are no JSON object, which the template wants: {}",
        printable(name), printable(why)));
}

Value call_in_form(const Value& call, const MessageForms& forms) {
    const Value* held = find(call, "function");
    const Value& function = held != nullptr && held->is(Kind::kDict) ? *held : call;
    const Value* arguments = find(function, "arguments");
    if (arguments == nullptr) return call;
    const Value* name = find(function, "name");
    const Value changed =
        with(function, "arguments",
             arguments_in_form(*arguments, forms,
                               name != nullptr && name->is(Kind::kText) ? name->text() : ""));
    return &function == &call ? changed : with(call, "function", changed);
}

Value calls_in_form(const Value& calls, const MessageForms& forms) {
    if (!calls.is(Kind::kList)) return calls;
    Values changed;
    for (const Value& call : calls.items()) changed.push_back(call_in_form(call, forms));
    return list_of(std::move(changed));
}

// Gives ENTRIES, of a message that calls tools, the content beside which the template writes calls,
// if they say nothing.
void settle_bare_content(std::vector<Entry>& entries, const MessageForms& forms) {
    if (!forms.bare_calls) return;
    const auto become = [&](BareContent content) {
        return (*forms.bare_calls)[static_cast<size_t>(content)];
    };
    const auto held = std::ranges::find_if(entries, [](const Entry& entry) {
        return entry.first.is(Kind::kText) && entry.first.text() == "content";
    });
    BareContent settled = BareContent::kAbsent;  // null too, as transformers has it
    if (held != entries.end() && !held->second.is(Kind::kNone)) {
        if (!held->second.is(Kind::kText) || !held->second.text().empty()) return;
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
                "it calls a tool and says nothing, and the template writes no "
                "calls: give it a content, or leave it and the tool's answer out");
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
    const Value* held_role = find(message, "role");
    const std::string role =
        held_role != nullptr && held_role->is(Kind::kText) ? held_role->text() : "";
    std::vector<Entry> entries = message.dict().entries;
    const auto at = [&](std::string_view key) {
        return std::ranges::find_if(entries, [&](const Entry& entry) {
            return entry.first.is(Kind::kText) && entry.first.text() == key;
        });
    };
    const auto calls = at("tool_calls");
    const bool is_list = calls != entries.end() && calls->second.is(Kind::kList);
    if (is_list && !calls->second.items().empty()) {
        settle_bare_content(entries, forms);
    } else {
        if (is_list) entries.erase(calls);
        if (role == "assistant" && at("content") == entries.end())
            add_content(entries, BareContent::kEmpty);
    }
    for (auto& [key, value] : entries) {
        if (!key.is(Kind::kText)) continue;
        if (key.text() == "content") value = content_in_form(value, contents_of(forms, role));
        if (key.text() == "tool_calls") value = calls_in_form(value, forms);
        if (key.text() == "role" && role == "developer" && !forms.knows_developer)
            value = plain("system");
    }
    return dict_of(std::move(entries));
}

}  // namespace dslaunch::text
