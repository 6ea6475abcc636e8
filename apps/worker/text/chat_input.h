// Turns a request for a chat into the input of the model's chat template. Data path: JSON of a
// request -> [here] -> text/chat_template. Pure.
#pragma once

#include "server/api_request.h"
#include "text/chat_template/template_files.h"

namespace dslaunch::worker {

// Returns the variables that CHAT sets for the template, followed by MORE. The result no longer
// needs the request's document. Throws Error{kInput} for an integer with thousands of digits.
[[nodiscard]] text::ChatInput chat_input_of(const server::ApiRequest& chat,
                                            const text::TemplateVariables& more);

}  // namespace dslaunch::worker
