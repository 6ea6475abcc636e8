// The field `pattern` of a tokenizer.json: {"String": …} or {"Regex": …}.
#pragma once

#include <memory>

#include "base/text/json_place.h"
#include "text/pattern/pattern.h"

namespace dslaunch::text {

// Throws Error{kInput} that names the place.
[[nodiscard]] std::unique_ptr<const Pattern> read_pattern(const JsonPlace& place);

}  // namespace dslaunch::text
