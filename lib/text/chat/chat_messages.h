// The messages of a row of training text: the checks of each, their forms, and the choice of those
// that are learned. Pure.
#pragma once

#include "text/chat_template/values/value.h"

#include <stdexcept>
#include <string>
#include <string_view>

namespace dslaunch::text {

// The reason why a row is refused; caught where a line's reason is made.
class RowFault : public std::runtime_error {
  public:
    explicit RowFault(const std::string& reason) : std::runtime_error(reason) {}
};

// Returns {"role": ROLE, "content": CONTENT}.
[[nodiscard]] jinja::Value message_of(std::string_view role, std::string_view content);
// Returns the text of a message's content: a text, or its parts' texts joined; "" for none.
[[nodiscard]] std::string content_text(const jinja::Value& message);
[[nodiscard]] const std::string& role_of(const jinja::Value& message);

// Returns false for a message whose `weight`, `train`, `training` or `loss` is 0 or false.
[[nodiscard]] bool is_learned(const jinja::Value& message);

// Returns VALUE as messages, and checks each. WHERE names it in reasons, as "messages". Messages of
// the usual other forms become those with role and content, whatever else they hold:
//   {"from": "human", "value": …}, ShareGPT's; a call of a tool that says `function_call`, in
//   either form, becomes one of tool_calls;
//   {"input": …, "output": …} and its kin, a question and its answer;
//   texts: the user says the first, and then the two speakers take turns.
// Throws RowFault.
[[nodiscard]] jinja::Values messages_of(const jinja::Value& value, const std::string& where);
// Returns the messages of earlier turns, each a list of a question and its answer. Throws RowFault.
[[nodiscard]] jinja::Values history_of(const jinja::Value& value, const std::string& where);

}  // namespace dslaunch::text
