// The fields of OpenAI's completions and chat protocol, and further fields of common servers. Some
// of them are read, some have no effect here, and the others are refused unless they have their
// defaults. Data path: json_document.h -> [here], api_request.h. Pure.
#pragma once

#include <optional>
#include <string>

#include "server/json/json_document.h"

namespace dslaunch::server {

// A field, and the reason why a request with it is refused.
struct FieldFault {
    std::string field, why;
};

// Checks the fields of REQUEST (a completion or a chat) that api_request.h does not read. Returns a
// fault if a field is unknown, if its value has the wrong type, or if it asks for something that
// this server does not support. REQUIRES: REQUEST is an object.
[[nodiscard]] std::optional<FieldFault> fault_of_fields(JsonView request, bool is_chat);

}  // namespace dslaunch::server
