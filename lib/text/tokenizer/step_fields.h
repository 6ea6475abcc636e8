// Which fields a step of a tokenizer.json may have.
#pragma once

#include <initializer_list>
#include <string_view>

#include "base/text/json_place.h"

namespace dslaunch::text {

// Throws Error{kInput} that names the place unless PLACE is an object with fields of KNOWN alone,
// or with those that transformers leaves on any step it takes for a ByteLevel one, where nothing
// reads them.
void expect_step_fields(const JsonPlace& place, std::initializer_list<std::string_view> known);

}  // namespace dslaunch::text
