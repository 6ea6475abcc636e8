// The permission for a model's code to use operators that reach beyond tensors. Used by model.h and
// by everything that loads a model.
#pragma once

#include <cstdint>

namespace dslaunch::graph {

// kFull: the user trusts the maker of the model (--trust-model).
enum class Trust : uint8_t { kNone, kFull };

// Returns the permission for the switch --trust-model.
constexpr Trust trust_of(bool is_trusted) {
    return is_trusted ? Trust::kFull : Trust::kNone;
}

}  // namespace dslaunch::graph
