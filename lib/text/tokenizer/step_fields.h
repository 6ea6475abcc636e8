// The fields of a step of a tokenizer.json, and nested steps. All throw Error{kInput} that names
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

// Checks that PLACE is an object whose fields are all in KNOWN. Fields of ByteLevel are also
// accepted and ignored, because transformers may write them into any step that it treats as
// ByteLevel.
void expect_step_fields(const JsonPlace& place, std::initializer_list<std::string_view> known);

// Calls USE(step, type) for the step at PLACE or, if this step is a Sequence, for each step in its
// field LIST. A Sequence may contain other Sequences.
void for_steps(const JsonPlace& place, const char* list,
               const std::function<void(const JsonPlace&, const std::string&)>& use);

// Reads {"String": …} or {"Regex": …}.
[[nodiscard]] std::unique_ptr<const Pattern> read_pattern(const JsonPlace& place);
// Reads a string of one character.
[[nodiscard]] const std::string& read_character(const JsonPlace& place);

}  // namespace dslaunch::text
