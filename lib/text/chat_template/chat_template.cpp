#include "text/chat_template/chat_template.h"

#include "text/chat_template/filters/filters.h"
#include "text/chat_template/filters/tests.h"
#include "text/chat_template/language/statements.h"
#include "text/chat_template/language/syntax_fault.h"
#include "text/chat_template/message_forms.h"
#include "text/chat_template/run/interpreter.h"
#include "text/chat_template/values/compare.h"
#include "text/chat_template/values/json_text.h"
#include "text/chat_template/values/letters.h"

#include "base/error.h"
#include "base/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <unordered_map>

namespace dslaunch::text {
namespace {

using jinja::Kind;
using jinja::Value;

constexpr std::string_view kContinueTag = "CONTINUE_FINAL_MESSAGE_TAG ";
constexpr size_t kSourceBytesMax = size_t{4} << 20;
constexpr size_t kMessageBytesMax = 2000;

constexpr jinja::KnownNames kKnownNames{jinja::is_filter_name, jinja::is_test_name};

Value plain_text(std::string text) {
    return jinja::new_text(nullptr, std::move(text));
}

std::tm local_now() {
    const std::time_t seconds = std::time(nullptr);
    std::tm now{};
    localtime_r(&seconds, &now);
    return now;
}

// A message without the keys whose value is none, but for a content beside calls, of which
// in_form() decides; and its reasoning, which has had several names, under those that templates
// read.
Value prepared_message(const Value& message) {
    std::vector<jinja::Entry> entries;
    const Value* calls = jinja::find_key(message.dict(), "tool_calls");
    const bool has_calls = calls != nullptr && calls->is(Kind::kList) && !calls->items().empty();
    const auto is_content = [](const Value& key) {
        return key.is(Kind::kText) && key.text() == "content";
    };
    for (const auto& entry : message.dict().entries)
        if (!entry.second.is(Kind::kNone) || (has_calls && is_content(entry.first)))
            entries.push_back(entry);
    Value reasoning = Value::none();
    for (const char* name : {"reasoning", "thinking", "reasoning_content"})
        for (const auto& [key, value] : entries)
            if (key.is(Kind::kText) && key.text() == name) reasoning = value;
    if (reasoning.is(Kind::kNone)) return jinja::new_dict(nullptr, std::move(entries));
    const auto find = [&](std::string_view name) {
        return std::find_if(entries.begin(), entries.end(), [&](const jinja::Entry& entry) {
            return entry.first.is(Kind::kText) && entry.first.text() == name;
        });
    };
    if (find("thinking") == entries.end())
        entries.insert(entries.begin(), {plain_text("thinking"), reasoning});
    if (const auto held = find("reasoning_content"); held != entries.end()) {
        held->second = reasoning;
    } else {
        entries.emplace_back(plain_text("reasoning_content"), reasoning);
    }
    return jinja::new_dict(nullptr, std::move(entries));
}

jinja::Values prepared_messages(const std::string& name, const Value& messages,
                                const MessageForms& forms) {
    if (!messages.is(Kind::kList)) {
        fail(ExitCode::kInput,
             "{}: the messages are no list: give a list of objects with role and "
             "content",
             name);
    }
    if (messages.items().empty())
        fail(ExitCode::kInput, "{}: the conversation has no message: give one at least", name);
    jinja::Values prepared;
    for (const Value& message : messages.items()) {
        if (!message.is(Kind::kDict)) {
            fail(ExitCode::kInput, "{}: message {} is no object: give role and content", name,
                 prepared.size() + 1);
        }
        try {
            prepared.push_back(in_form(prepared_message(message), forms));
        } catch (const jinja::Fault& fault) {
            fail(ExitCode::kInput, "{}: message {}: {}", name, prepared.size() + 1, fault.what());
        }
    }
    return prepared;
}

Value with_entry(const Value& dict, std::string_view key, const Value& value) {
    std::vector<jinja::Entry> entries = dict.dict().entries;
    for (auto& [name, held] : entries)
        if (name.is(Kind::kText) && name.text() == key) held = value;
    return jinja::new_dict(nullptr, std::move(entries));
}

// CONTENT with the tag behind its last text. FINAL becomes that text. Nothing: it has none.
std::optional<Value> tagged_content(const Value& content, std::string& final) {
    if (content.is(Kind::kText)) {
        final = content.text();
        return plain_text(final + std::string(kContinueTag));
    }
    if (!content.is(Kind::kList)) return std::nullopt;
    jinja::Values parts = content.items();
    for (size_t i = parts.size(); i-- > 0;) {
        if (!parts[i].is(Kind::kDict)) continue;
        const Value* text = jinja::find_key(parts[i].dict(), "text");
        if (text == nullptr || !text->is(Kind::kText)) continue;
        final = text->text();
        parts[i] = with_entry(parts[i], "text", plain_text(final + std::string(kContinueTag)));
        return jinja::new_list(nullptr, std::move(parts));
    }
    return std::nullopt;
}

// The chat up to the tag, FINAL being the text before it in the last message.
std::string continued_text(const std::string& name, const std::string& text,
                           const std::string& final) {
    const std::string_view tag = jinja::strip_blanks(kContinueTag);
    const size_t at = text.rfind(tag);
    if (at == std::string::npos || text.find(jinja::strip_blanks(final)) == std::string::npos) {
        fail(ExitCode::kInput,
             "{}: the last message is not in the text as it was given, so it "
             "cannot be continued: the template changes or drops it",
             name);
    }
    if (text.compare(at, kContinueTag.size(), kContinueTag) == 0) return text.substr(0, at);
    return std::string(
        jinja::strip_blanks(std::string_view(text).substr(0, at), {.left = false, .right = true}));
}

}  // namespace

struct ChatTemplate::Parts {
    std::string name;
    std::string source;
    TemplateVariables special_tokens;
    jinja::Tree tree;
    MessageForms forms;
};

ChatTemplate::ChatTemplate(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;
ChatTemplate& ChatTemplate::operator=(ChatTemplate&&) noexcept = default;
ChatTemplate::~ChatTemplate() = default;

ChatTemplate ChatTemplate::parse(std::string_view source, std::string name,
                                 TemplateVariables special_tokens) {
    if (source.size() > kSourceBytesMax) {
        fail(ExitCode::kInput, "{}: a chat template of {} bytes, {} at most: is it another file?",
             name, source.size(), kSourceBytesMax);
    }
    int line = 1;
    for (size_t i = 0; i < source.size();) {
        const size_t length = utf8_length(source, i);
        if (length == 0)
            fail(ExitCode::kInput, "{}:{}: a byte that is not UTF-8: save the file as UTF-8", name,
                 line);
        line += source[i] == '\n' ? 1 : 0;
        i += length;
    }
    auto parts = std::make_unique<Parts>();
    try {
        parts->tree = jinja::parse_template(source, kKnownNames);
    } catch (const jinja::SyntaxFault& fault) {
        fail(ExitCode::kInput, "{}:{}: not a valid template: {}", name, fault.line(),
             printable(fault.what()));
    }
    parts->name = std::move(name);
    parts->source = source;
    parts->special_tokens = std::move(special_tokens);
    ChatTemplate made(std::move(parts));
    made.find_forms();
    return made;
}

// Renders conversations that are too short to take long, whatever the template does.
void ChatTemplate::find_forms() {
    TemplateOptions options;
    options.limits = {.steps_max = 200'000,
                      .memory_bytes_max = size_t{16} << 20,
                      .output_bytes_max = size_t{4} << 20};
    options.now = std::tm{};
    options.now->tm_mday = 1;
    options.now->tm_year = 126;
    const auto render = [&](const Value& messages,
                            const Value& tools) -> std::optional<std::string> {
        ChatInput input;
        input.messages = messages;
        input.tools = tools;
        try {
            return apply(input, options).text;
        } catch (const Error&) {
            return std::nullopt;
        }
    };
    // Every form is taken until then, so that the probes come to the template as they are.
    const MessageForms found = find_message_forms(parts_->source, render);
    parts_->forms = found;
}

RenderedChat ChatTemplate::render(const TemplateVariables& variables,
                                  const TemplateOptions& options) const {
    return render(variables, {}, options);
}

RenderedChat ChatTemplate::render(const TemplateVariables& variables, const jinja::Values& messages,
                                  const TemplateOptions& options) const {
    try {
        jinja::Printed printed = jinja::run_template(parts_->tree, variables, options.limits,
                                                     options.now ? *options.now : local_now());
        RenderedChat chat;
        chat.text = std::move(printed.text);
        for (const auto& [begin, end] : printed.generated) chat.generated.push_back({begin, end});
        std::unordered_map<const void*, size_t> numbers;
        for (size_t i = 0; i < messages.size(); ++i) numbers.emplace(&messages[i].dict(), i);
        for (const jinja::PrintedTurn& turn : printed.turns)
            if (const auto found = numbers.find(turn.message); found != numbers.end())
                chat.by_message.push_back({found->second, {turn.begin_bytes, turn.end_bytes}});
        chat.has_lost_mark = printed.has_lost_generation;
        return chat;
    } catch (const jinja::RunFault& fault) {
        std::string message = printable(fault.what());
        if (message.size() > kMessageBytesMax) message.resize(kMessageBytesMax);
        fail(ExitCode::kInput, "{}:{}: {}", parts_->name, fault.line(), printable(message));
    }
}

RenderedChat ChatTemplate::render(const nlohmann::ordered_json& variables,
                                  const TemplateOptions& options) const {
    TemplateVariables values;
    for (const auto& [name, value] : variables.items())
        values.emplace_back(name, template_value(value));
    return render(values, options);
}

RenderedChat ChatTemplate::apply(const ChatInput& input, const TemplateOptions& options) const {
    const std::string& name = parts_->name;
    MessageForms forms = parts_->forms;
    if (input.prefers_objects && forms.shows_arguments && forms.takes_argument_objects)
        forms.takes_argument_text = false;
    jinja::Values messages = prepared_messages(name, input.messages, forms);
    std::string final;
    if (input.continue_final_message) {
        if (input.add_generation_prompt) {
            fail(ExitCode::kInput,
                 "{}: continue_final_message goes on with the last message, and "
                 "add_generation_prompt begins a new one: use one of them",
                 name);
        }
        const Value* content = jinja::find_key(messages.back().dict(), "content");
        const bool is_read = parts_->source.find("content") != std::string::npos;
        const auto tagged =
            content == nullptr || !is_read ? std::nullopt : tagged_content(*content, final);
        if (!tagged) {
            fail(ExitCode::kInput, "{}: the last message has no text that could be continued",
                 name);
        }
        messages.back() = with_entry(messages.back(), "content", *tagged);
    }
    TemplateVariables variables = {
        {"messages", jinja::new_list(nullptr, messages)},
        {"tools", input.tools},
        {"documents", input.documents},
        {"add_generation_prompt", Value::boolean(input.add_generation_prompt)},
    };
    const auto add = [&](const TemplateVariables& more) {
        for (const auto& one : more) {
            const bool is_there = std::any_of(variables.begin(), variables.end(),
                                              [&](const auto& v) { return v.first == one.first; });
            if (!is_there) variables.push_back(one);
        }
    };
    add(input.more);
    add(parts_->special_tokens);
    RenderedChat chat = render(variables, messages, options);
    if (input.continue_final_message) {
        chat.by_message.clear();
        chat.text = continued_text(name, chat.text, final);
        for (TextRange& range : chat.generated)
            range.end_bytes = std::min(range.end_bytes, chat.text.size());
        std::erase_if(chat.generated,
                      [](const TextRange& range) { return range.begin_bytes >= range.end_bytes; });
    }
    return chat;
}

bool ChatTemplate::marks_answers() const {
    return parts_->tree.has_generation;
}

bool ChatTemplate::mentions(std::string_view name) const {
    return std::ranges::find(parts_->tree.names, name) != parts_->tree.names.end();
}

const std::string& ChatTemplate::name() const {
    return parts_->name;
}

jinja::Value template_value(const nlohmann::ordered_json& value) {
    try {
        return jinja::value_of_json(value.dump());
    } catch (const jinja::Fault& fault) {
        fail(ExitCode::kInput, "a value for a template: {}", fault.what());
    } catch (const nlohmann::json::exception& error) {
        fail(ExitCode::kInput, "a value for a template: {}", printable(error.what()));
    }
}

}  // namespace dslaunch::text
