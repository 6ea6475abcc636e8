// The buffers that models of transformers compute themselves: a folder may contain them, because
// older versions saved them, but does not need them. Pure.
#pragma once

#include <string>

namespace dslaunch::storage {

// Returns true for the rotary embedding's frequencies, causal masks and position ids.
[[nodiscard]] bool is_derived_buffer(const std::string& name);

}  // namespace dslaunch::storage
