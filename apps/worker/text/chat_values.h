// The messages of a request as a chat template takes them. Data path: json_document.h -> [here] ->
// chat_template.h. Pure.
#pragma once

#include "serve/json/json_document.h"
#include "tokens/template/values/value.h"

namespace dslaunch::worker {

// VALUE as a template's value, which needs no document any more. Throws Error{kInput} for a whole
// number of thousands of digits.
[[nodiscard]] tokens::jinja::Value template_value(serve::JsonView value);

}  // namespace dslaunch::worker
