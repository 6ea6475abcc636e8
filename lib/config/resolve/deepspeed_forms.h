// The forms that DeepSpeed takes a section or a value in, as one. Between the train config and its
// check against the schema. No threads.
#pragma once

#include "config/read/value.h"

namespace dslaunch::config {

// Returns ROOT with `zero_optimization: true` as stage 1, and with the values of the sections that
// DeepSpeed checks by type in the type that they spell: "true" and 1 are true, "2" is 2. Origins
// stay. REQUIRES: an object.
[[nodiscard]] Value in_one_form(Value root);

}  // namespace dslaunch::config
