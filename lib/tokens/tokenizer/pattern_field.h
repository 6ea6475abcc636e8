// The field `pattern` of a tokenizer.json: {"String": …} or {"Regex": …}.
#pragma once

#include <memory>

#include "base/text/json_place.h"
#include "tokens/pattern/pattern.h"

namespace dslaunch::tokens {

// Throws Error{kInput} that names the place.
[[nodiscard]] std::unique_ptr<const Pattern> read_pattern(const JsonPlace& place);

}  // namespace dslaunch::tokens
