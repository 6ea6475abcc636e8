// A sample of training text: the contents of a row, whatever form the row has. Data path:
// row_form.h -> [here] -> segments.h. Values only.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "text/chat_template/values/values.h"

namespace dslaunch::text {

// The form of a row. Forms are looked for in this order, because a row may have the columns of
// several forms.
enum class ChatFormat {
    kPreference,     // two answers to one question, texts or lists of messages
    kMessages,       // {"messages": [{"role", "content"}…]}
    kConversations,  // messages in `conversations` (ShareGPT) or `conversation`
    kInstruction,    // {"instruction"[, "input" or "context"]} and an answer (Alpaca)
    kCompletion,     // {"prompt", "completion"}, texts or lists of messages
    kQuery,          // a question and its answer in other columns: {"question", "answer"}
    kText,           // {"text"}
};
// Returns the name of FORMAT in reports, such as "conversations".
[[nodiscard]] inline const char* chat_format_name(ChatFormat format) {
    constexpr const char* kNames[] = {"preference", "messages", "conversations", "instruction",
                                      "completion", "query",    "text"};
    return kNames[static_cast<size_t>(format)];
}

// The contents of one row.
struct ChatSample {
    ChatFormat format = ChatFormat::kText;
    std::string text;  // kText: the whole sample

    // The conversation as a template takes it: objects with role and content, and with tool_calls
    // and other keys as they were given. In kPreference, it has the chosen answer. Empty for kText.
    jinja::Values messages;
    jinja::Values rejected;  // kPreference: the conversation with the rejected answer
    // The number of messages at the beginning that are not answers, even if their role is
    // assistant.
    size_t prompt_messages = 0;

    // True if the row has strings and no messages. It can then also be rendered without a template.
    bool is_plain = false;
    // True if the answer continues the prompt's text, as in {"prompt", "completion"} and {"prompt",
    // "chosen", "rejected"}. A template is then used only on request.
    bool is_continued = false;
    // True if a learned answer has no text and calls no tool. Only its end is then learned.
    bool has_empty_answer = false;
    std::string instruction, input;  // kInstruction: as given

    jinja::Value tools = jinja::Value::none();      // a list, or none
    jinja::Value documents = jinja::Value::none();  // a list, or none
    // Further variables for the template, from `chat_template_kwargs`.
    std::vector<std::pair<std::string, jinja::Value>> more;
};

}  // namespace dslaunch::text
