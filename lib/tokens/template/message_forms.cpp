#include "tokens/template/message_forms.h"

#include "tokens/template/values/compare.h"
#include "tokens/template/values/json_text.h"

#include "base/text.h"

#include <fmt/format.h>

#include <array>
#include <utility>

namespace dslaunch::tokens {
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

Value call_with(const Value& arguments, bool with_content) {
    Value call = jinja::value_of_json(kProbeCall).items()[0];
    call = with(call, "function", with(*find(call, "function"), "arguments", arguments));
    std::vector<Entry> entries = {{plain("role"), plain("assistant")}};
    if (with_content) entries.emplace_back(plain("content"), plain(""));
    entries.emplace_back(plain("tool_calls"), list_of({call}));
    return dict_of(std::move(entries));
}

Value tool_result(Value content) {
    return dict_of({{plain("role"), plain("tool")},
                    {plain("name"), plain("qz7tool")},
                    {plain("tool_call_id"), plain("qz7call01")},
                    {plain("content"), std::move(content)}});
}

// A conversation in which ROLE says CONTENT, and the others speak as parts or as texts.
Value conversation(std::string_view role, const Value& content, bool with_content, bool as_parts) {
    const auto said = [&](const char* who, const char* text) {
        return message_with(who, as_parts ? list_of({part_of(text)}) : plain(text));
    };
    const Value question = said("user", "q");
    const Value answer = said("assistant", "a");
    if (role == "system") return list_of({message_with("system", content), question});
    if (role == "user") return list_of({message_with("user", content)});
    if (role == "assistant")
        return list_of({question, message_with("assistant", content), question});
    const Value call = call_with(
        *find(*find(jinja::value_of_json(kProbeCall).items()[0], "function"), "arguments"),
        with_content);
    return list_of({question, call, tool_result(content), answer});
}

class Prober {
  public:
    explicit Prober(const ProbeRendering& render) : render_(render) {}

    ContentForms contents_of(std::string_view role) const {
        const bool shows_text = shows_content(role, plain(kWord), false);
        const bool shows_parts = shows_content(role, list_of({part_of(kWord)}), true);
        if (!shows_text && !shows_parts) return {};
        return {shows_text, shows_parts};
    }

    void find_arguments(MessageForms& forms) const {
        const Value object = dict_of({{plain(kKey), plain(kWord)}});
        const std::string json = fmt::format("{{\"{}\": \"{}\"}}", kKey, kWord);
        const bool shows_text = shows_call(plain(json), [&](const std::string& text) {
            return text.find(json) != std::string::npos;
        });
        // Python's text of the object is none that a model was trained on.
        const bool shows_object = shows_call(object, [&](const std::string& text) {
            return text.find(kWord) != std::string::npos &&
                   text.find(fmt::format("'{}'", kKey)) == std::string::npos;
        });
        if (!shows_text && !shows_object) return;
        forms.shows_arguments = true;
        forms.takes_argument_text = shows_text;
        forms.takes_argument_objects = shows_object;
    }

  private:
    // Returns true if SHOWS holds for a text that the template makes of CONVERSATION(whether the
    // message of a call has a content), with tools or without.
    template <typename Conversation, typename Shows>
    bool shows_once(const Conversation& conversation, const Shows& shows) const {
        for (const bool with_content : {false, true})
            for (const bool with_tools : {false, true}) {
                const auto text =
                    render_(conversation(with_content),
                            with_tools ? jinja::value_of_json(kProbeTools) : Value::none());
                if (text && shows(*text)) return true;
            }
        return false;
    }

    bool shows_content(std::string_view role, const Value& content, bool is_parts) const {
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
                    [&](bool with_content) {
                        return conversation(role, content, with_content, as_parts);
                    },
                    shows))
                return true;
        return false;
    }

    template <typename Shows>
    bool shows_call(const Value& arguments, const Shows& shows) const {
        return shows_once(
            [&](bool with_content) {
                return list_of({message_with("user", plain("q")),
                                call_with(arguments, with_content), tool_result(plain("r")),
                                message_with("assistant", plain("a"))});
            },
            shows);
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

}  // namespace

MessageForms find_message_forms(std::string_view source, const ProbeRendering& render) {
    MessageForms forms;
    const Prober prober(render);
    forms.system = prober.contents_of("system");
    forms.user = prober.contents_of("user");
    forms.assistant = prober.contents_of("assistant");
    forms.tool = prober.contents_of("tool");
    prober.find_arguments(forms);
    forms.knows_developer = source.find("'developer'") != std::string_view::npos ||
                            source.find("\"developer\"") != std::string_view::npos;
    return forms;
}

Value in_form(const Value& message, const MessageForms& forms) {
    const Value* held_role = find(message, "role");
    const std::string role =
        held_role != nullptr && held_role->is(Kind::kText) ? held_role->text() : "";
    std::vector<Entry> entries = message.dict().entries;
    for (auto& [key, value] : entries) {
        if (!key.is(Kind::kText)) continue;
        if (key.text() == "content") value = content_in_form(value, contents_of(forms, role));
        if (key.text() == "tool_calls") value = calls_in_form(value, forms);
        if (key.text() == "role" && role == "developer" && !forms.knows_developer)
            value = plain("system");
    }
    return dict_of(std::move(entries));
}

}  // namespace dslaunch::tokens
