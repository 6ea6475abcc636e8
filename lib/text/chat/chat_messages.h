// The messages of a row of training text: the checks of each, the forms that they come in, and
// which of them are learned. Pure.
#pragma once

#include "text/chat_template/values/value.h"

#include <stdexcept>
#include <string>
#include <string_view>

namespace dslaunch::text {

// Why a row is refused; caught where a line's reason is made.
class RowFault : public std::runtime_error {
  public:
    explicit RowFault(const std::string& reason) : std::runtime_error(reason) {}
};

// {"role": ROLE, "content": CONTENT}
[[nodiscard]] jinja::Value message_of(std::string_view role, std::string_view content);
// The text of a message's content: a text, or its parts' texts one after the other; "" for none.
[[nodiscard]] std::string content_text(const jinja::Value& message);
[[nodiscard]] const std::string& role_of(const jinja::Value& message);

// False for a message that says so itself: `weight`, `train`, `training` or `loss` is 0 or false.
[[nodiscard]] bool is_learned(const jinja::Value& message);

// VALUE as messages, each of which is checked. WHERE names it in reasons, as "messages". Messages
// of the usual other forms become those with role and content, whatever else they hold:
//   {"from": "human", "value": …}, ShareGPT's; a call of a tool that says `function_call`, in
//   either form, becomes one of tool_calls;
//   {"input": …, "output": …} and its kin, a question and its answer;
//   texts, of which the user says the first, and then each the other one.
// Throws RowFault.
[[nodiscard]] jinja::Values messages_of(const jinja::Value& value, const std::string& where);
// The messages of earlier turns, each a list of a question and its answer. Throws RowFault.
[[nodiscard]] jinja::Values history_of(const jinja::Value& value, const std::string& where);

}  // namespace dslaunch::text
