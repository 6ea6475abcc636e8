// The messages of a row of training text: the checks of each, and the forms that they come in.
#pragma once

#include "tokens/template/values/value.h"

#include <stdexcept>
#include <string>
#include <string_view>

namespace dslaunch::tokens {

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

// VALUE as messages, each of which is checked. WHERE names it in reasons, as "messages". Messages
// of ShareGPT's form, with `from` and `value`, become those with role and content. Throws RowFault.
[[nodiscard]] jinja::Values messages_of(const jinja::Value& value, const std::string& where);

}  // namespace dslaunch::tokens
