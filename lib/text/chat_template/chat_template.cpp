#include "text/chat_template/chat_template.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/text.h"
#include "text/chat_template/language/syntax.h"
#include "text/chat_template/message_forms.h"
#include "text/chat_template/run/interpreter.h"
#include "text/chat_template/values/json_text.h"
#include "text/chat_template/values/letters.h"
#include "text/chat_template/values/members.h"
#include "text/unicode/code_points.h"

namespace dslaunch::text {
namespace {

using jinja::Value;
using jinja::ValueKind;

constexpr std::string_view kContinueTag = "CONTINUE_FINAL_MESSAGE_TAG ";
constexpr size_t kSourceBytesMax = size_t{4} << 20;
constexpr size_t kMessageBytesMax = 2000;

std::tm local_now() {
    const std::time_t seconds = std::time(nullptr);
    std::tm now{};
    localtime_r(&seconds, &now);
    return now;
}

// Returns MESSAGE with two changes. First, keys whose value is none are removed; only the key
// `content` of a message with calls stays, because in_form() handles it. Second, the reasoning,
// which clients send under several names, is stored under the names that templates read.
Value prepared_message(const Value& message) {
    std::vector<jinja::Entry> entries = message.dict().entries;
    const Value* calls = jinja::member(message, "tool_calls");
    const bool has_calls =
        calls != nullptr && calls->is(ValueKind::kList) && !calls->items().empty();
    std::erase_if(entries, [&](const jinja::Entry& entry) {
        return entry.second.is(ValueKind::kNone) &&
               !(has_calls && jinja::has_name(entry, "content"));
    });
    const auto find = [&](std::string_view name) {
        return std::ranges::find_if(
            entries, [&](const jinja::Entry& entry) { return jinja::has_name(entry, name); });
    };
    std::optional<Value> reasoning;
    for (const char* name : {"reasoning", "thinking", "reasoning_content"})
        if (const auto held = find(name); held != entries.end()) reasoning = held->second;
    if (reasoning && find("thinking") == entries.end())
        entries.insert(entries.begin(), {jinja::plain_text("thinking"), *reasoning});
    if (const auto held = find("reasoning_content"); held != entries.end()) {
        held->second = *reasoning;
    } else if (reasoning) {
        entries.emplace_back(jinja::plain_text("reasoning_content"), *reasoning);
    }
    return jinja::plain_dict(std::move(entries));
}

// Returns MESSAGES as a list. Throws Error{kInput} if the list is too deep.
Value message_list(const std::string& name, jinja::Values messages) {
    try {
        return jinja::plain_list(std::move(messages));
    } catch (const jinja::Fault& fault) {
        fail(ExitCode::kInput, "{}: the messages: {}", name, printable(fault.what()));
    }
}

jinja::Values prepared_messages(const std::string& name, const Value& messages,
                                const MessageForms& forms) {
    if (!messages.is(ValueKind::kList)) {
        fail(ExitCode::kInput,
             "{}: the messages are not a list; give a list of objects with role and content", name);
    }
    if (messages.items().empty())
        fail(ExitCode::kInput, "{}: the conversation has no message; give at least one", name);
    jinja::Values prepared;
    for (const Value& message : messages.items()) {
        if (!message.is(ValueKind::kDict)) {
            fail(ExitCode::kInput,
                 "{}: message {} is not an object; give an object with role and content", name,
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

// Appends kContinueTag to the last text in CONTENT, and returns the changed content. Sets FINAL to
// the last text without the tag. Returns nothing if CONTENT has no text.
std::optional<Value> tagged_content(const Value& content, std::string& final) {
    if (content.is(ValueKind::kText)) {
        final = content.text();
        return jinja::plain_text(final + std::string(kContinueTag));
    }
    if (!content.is(ValueKind::kList)) return std::nullopt;
    jinja::Values parts = content.items();
    for (size_t i = parts.size(); i-- > 0;) {
        const std::string* text = jinja::text_member(parts[i], "text");
        if (text == nullptr) continue;
        final = *text;
        parts[i] = jinja::with_member(parts[i], "text",
                                      jinja::plain_text(final + std::string(kContinueTag)));
        return jinja::plain_list(std::move(parts));
    }
    return std::nullopt;
}

// Returns the rendered text up to the tag. FINAL is the text before the tag in the last message.
std::string continued_text(const std::string& name, const std::string& text,
                           const std::string& final) {
    const std::string_view tag = jinja::strip_blanks(kContinueTag);
    const size_t at = text.rfind(tag);
    if (at == std::string::npos || text.find(jinja::strip_blanks(final)) == std::string::npos) {
        fail(ExitCode::kInput,
             "{}: the last message cannot be continued, because the template changes or drops its "
             "text",
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
        fail(ExitCode::kInput,
             "{}: the chat template has {} bytes, but at most {} are supported; is this another "
             "file?",
             name, source.size(), kSourceBytesMax);
    }
    const size_t valid = valid_utf8_prefix(source);
    if (valid != source.size())
        fail(ExitCode::kInput,
             "{}:{}: the line contains a byte that is not UTF-8; save the file as UTF-8", name,
             1 + std::ranges::count(source.substr(0, valid), '\n'));
    auto parts = std::make_unique<Parts>();
    try {
        parts->tree = jinja::parse_template(source);
    } catch (const jinja::LineFault& fault) {
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

// Finds the forms by rendering small conversations. Low limits keep the time short, whatever the
// template does.
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
    // parts_->forms still accepts every form here, so apply() passes the probes to the template
    // unchanged.
    const MessageForms found = find_message_forms(parts_->source, render);
    parts_->forms = found;
}

RenderedChat ChatTemplate::render(const TemplateVariables& variables,
                                  const TemplateOptions& options) const {
    try {
        return jinja::run_template(parts_->tree, variables, options.limits,
                                   options.now ? *options.now : local_now());
    } catch (const jinja::LineFault& fault) {
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
                 "{}: continue_final_message continues the last message, but add_generation_prompt "
                 "begins a new one; use only one of them",
                 name);
        }
        const Value* content = jinja::member(messages.back(), "content");
        const bool is_read = parts_->source.find("content") != std::string::npos;
        const auto tagged =
            content == nullptr || !is_read ? std::nullopt : tagged_content(*content, final);
        if (!tagged) {
            fail(ExitCode::kInput, "{}: the last message has no text that can be continued", name);
        }
        messages.back() = jinja::with_member(messages.back(), "content", *tagged);
    }
    TemplateVariables variables = {
        {"messages", message_list(name, std::move(messages))},
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
    RenderedChat chat = render(variables, options);
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
        fail(ExitCode::kInput, "a value cannot be passed to the chat template: {}", fault.what());
    } catch (const nlohmann::json::exception& error) {
        fail(ExitCode::kInput, "a value cannot be passed to the chat template: {}",
             printable(error.what()));
    }
}

}  // namespace dslaunch::text
