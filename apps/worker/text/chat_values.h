// The messages of a request as a chat template takes them. Data path: json_document.h -> [here] ->
// chat_template.h. Pure.
#pragma once

#include "server/json/json_document.h"
#include "text/chat_template/values/value.h"

namespace dslaunch::worker {

// VALUE as a template's value, which needs no document any more. Throws Error{kInput} for a whole
// number of thousands of digits.
[[nodiscard]] text::jinja::Value template_value(server::JsonView value);

}  // namespace dslaunch::worker
