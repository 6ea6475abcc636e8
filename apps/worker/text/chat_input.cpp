#include "worker/text/chat_input.h"

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"

namespace dslaunch::worker {
namespace {

using server::JsonKind;
using server::JsonView;
using text::jinja::Value;

Value template_value(JsonView value);

Value large_integer(std::string_view digits) {
    try {
        return text::jinja::new_integer(nullptr, digits);
    } catch (const text::jinja::Fault& fault) {
        fail(ExitCode::kInput, "a value for the chat template: {}", fault.what());
    }
}

Value list_of(JsonView array) {
    text::jinja::Values items;
    items.reserve(static_cast<size_t>(array.elements()));
    for (const JsonView item : array.items()) items.push_back(template_value(item));
    return text::jinja::new_list(nullptr, std::move(items));
}

Value dict_of(JsonView object) {
    std::vector<text::jinja::Entry> entries;
    entries.reserve(static_cast<size_t>(object.elements()));
    object.for_each_field([&](std::string_view key, JsonView value) {
        entries.emplace_back(text::jinja::new_text(nullptr, std::string(key)),
                             template_value(value));
    });
    return text::jinja::new_dict(nullptr, std::move(entries));
}

// Returns VALUE as a template value that no longer needs the JSON document. The recursion is
// limited, because the reader limits the depth of a document. Throws Error{kInput} for an integer
// with thousands of digits.
Value template_value(JsonView value) {
    switch (value.kind()) {
        case JsonKind::kNull:
            return Value::none();
        case JsonKind::kBool:
            return Value::boolean(value.flag());
        case JsonKind::kInteger:
            return Value::integer(value.integer());
        case JsonKind::kReal:
            return value.is_large_integer() ? large_integer(value.digits())
                                            : Value::real(value.real());
        case JsonKind::kText:
            return text::jinja::new_text(nullptr, std::string(value.text()));
        case JsonKind::kArray:
            return list_of(value);
        case JsonKind::kObject:
            return dict_of(value);
    }
    return Value::none();
}

}  // namespace

text::ChatInput chat_input_of(const server::ApiRequest& chat, const text::TemplateVariables& more) {
    const auto value_or_none = [](const std::optional<JsonView>& value) {
        return value ? template_value(*value) : Value::none();
    };
    text::ChatInput input;
    input.messages = template_value(*chat.messages);
    input.tools = value_or_none(chat.tools);
    input.documents = value_or_none(chat.documents);
    input.add_generation_prompt = chat.begins_answer;
    input.continue_final_message = chat.continues_last;
    const Value kwargs = value_or_none(chat.template_kwargs);
    if (chat.template_kwargs)
        for (const auto& [name, value] : kwargs.dict().entries)
            input.more.emplace_back(name.text(), value);
    if (!chat.reasoning_effort.empty())
        input.more.emplace_back("reasoning_effort",
                                text::jinja::new_text(nullptr, chat.reasoning_effort));
    // If two variables have the same name, the template uses the first.
    input.more.insert(input.more.end(), more.begin(), more.end());
    return input;
}

}  // namespace dslaunch::worker
