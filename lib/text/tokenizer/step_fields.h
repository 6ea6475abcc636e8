// The fields of a step of a tokenizer.json, and steps in steps. All throw Error{kInput} that names
// the place.
#pragma once

#include <functional>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>

#include "base/text/json_place.h"
#include "text/pattern/pattern.h"

namespace dslaunch::text {

// Checks that PLACE is an object with only fields of KNOWN, or also fields that transformers leaves
// unread on any step it takes for a ByteLevel one.
void expect_step_fields(const JsonPlace& place, std::initializer_list<std::string_view> known);

// Calls USE(step, its type) for PLACE, or for the steps in its list LIST if it is a Sequence, which
// may be nested.
void for_steps(const JsonPlace& place, const char* list,
               const std::function<void(const JsonPlace&, const std::string&)>& use);

// Reads {"String": …} or {"Regex": …}.
[[nodiscard]] std::unique_ptr<const Pattern> read_pattern(const JsonPlace& place);
// Reads a text of one character.
[[nodiscard]] const std::string& read_character(const JsonPlace& place);

}  // namespace dslaunch::text
