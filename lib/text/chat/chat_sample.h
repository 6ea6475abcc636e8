// A sample of training text: the contents of a row, in any form. Data path: chat_line.h -> [here]
// -> segments.h. Values only.
#pragma once

#include "text/chat_template/values/value.h"

#include <string>
#include <utility>
#include <vector>

namespace dslaunch::text {

// In the order in which they are looked for, as a row may have the columns of several.
enum class ChatFormat {
    kPreference,     // two answers to one question, texts or lists of messages
    kMessages,       // {"messages": [{"role", "content"}…]}
    kConversations,  // the same under `conversations`, ShareGPT's, or `conversation`
    kInstruction,    // {"instruction"[, "input" or "context"]} and an answer, Alpaca's
    kCompletion,     // {"prompt", "completion"}, texts or lists of messages
    kQuery,          // another question and its answer, as {"question", "answer"}
    kText,           // {"text"}
};
[[nodiscard]] inline const char* chat_format_name(ChatFormat format) {
    constexpr const char* kNames[] = {"preference", "messages", "conversations", "instruction",
                                      "completion", "query",    "text"};
    return kNames[static_cast<size_t>(format)];
}

struct ChatSample {
    ChatFormat format = ChatFormat::kText;
    std::string text;  // kText: all of it

    // The conversation as a template takes it: objects with role and content, tool_calls and the
    // like as they were given. kPreference: with the chosen answer. Empty for kText.
    jinja::Values messages;
    jinja::Values rejected;  // kPreference: the other one
    // The number of first messages that are not answers, even if the assistant says them.
    size_t prompt_messages = 0;

    // The row gave texts and no messages: it can be rendered without a template, too.
    bool is_plain = false;
    // The text goes on, as in {"prompt", "completion"} and {"prompt", "chosen", "rejected"}: it
    // gets a template only on request.
    bool is_continued = false;
    // A learned answer has no text and calls no tool: only its end is learned.
    bool has_empty_answer = false;
    std::string instruction, input;  // kInstruction: as given

    jinja::Value tools = jinja::Value::none();      // a list, or none
    jinja::Value documents = jinja::Value::none();  // a list, or none
    // Further variables of the template, from `chat_template_kwargs`.
    std::vector<std::pair<std::string, jinja::Value>> more;
};

}  // namespace dslaunch::text
