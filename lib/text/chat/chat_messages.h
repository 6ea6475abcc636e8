// The messages in a row of training text: checks of each message, conversion of other forms, and
// the choice of the messages that are learned. Pure.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>

#include "text/chat_template/values/values.h"

namespace dslaunch::text {

// The reason why a row is refused, as an exception. parse_row() catches it.
class RowFault : public std::runtime_error {
  public:
    explicit RowFault(const std::string& reason) : std::runtime_error(reason) {}
};

// Returns {"role": ROLE, "content": CONTENT}.
[[nodiscard]] jinja::Value message_of(std::string_view role, std::string_view content);
// Returns the text of a message's content. If the content is a list of parts, returns their texts,
// joined. Returns "" if there is no content.
[[nodiscard]] std::string content_text(const jinja::Value& message);
// Returns the role of MESSAGE. REQUIRES: MESSAGE has a role, as all results of messages_of() have.
[[nodiscard]] const std::string& role_of(const jinja::Value& message);

// Returns false for a message whose `weight`, `train`, `training`, `loss`, `trainable` or
// `loss_mask` is 0 or false.
[[nodiscard]] bool is_learned(const jinja::Value& message);

// Returns VALUE as messages, and checks each of them. WHERE names VALUE in reasons, for example
// "messages". Messages in other usual forms are converted to role and content; their other keys are
// kept:
//   {"from": "human", "value": …}, the form of ShareGPT;
//   a tool call in a message of the speaker `function_call` or under the key `function_call`:
//   it becomes one of tool_calls;
//   {"input": …, "output": …} and similar pairs: a question and its answer;
//   strings: the user says the first one, then the two speakers take turns.
// Throws RowFault.
[[nodiscard]] jinja::Values messages_of(const jinja::Value& value, const std::string& where);
// Converts VALUE, a list of earlier turns, to messages. Each turn is a list [question, answer].
// Throws RowFault.
[[nodiscard]] jinja::Values history_of(const jinja::Value& value, const std::string& where);

}  // namespace dslaunch::text
