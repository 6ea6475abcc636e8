// The fields of OpenAI's completions and chat protocol, with those that its usual servers add:
// which are read, which change nothing here, and which are refused unless they ask for nothing.
// Data path: json_document.h -> [here], api_request.h. Pure.
#pragma once

#include <optional>
#include <string>

#include "server/json/json_document.h"

namespace dslaunch::server {

struct FieldFault {
    std::string field, why;
};

// Returns the fault of a field of REQUEST, a completion or a chat, whose value api_request.h does
// not read: nobody knows the field, its value is of another kind than it has, or it asks for
// something that this server does not do. REQUIRES: an object.
[[nodiscard]] std::optional<FieldFault> fault_of_fields(JsonView request, bool is_chat);

}  // namespace dslaunch::server
