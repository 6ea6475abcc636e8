// Says whether the code of a model may use operators that reach beyond tensors. Used by model.h and
// by whatever loads a model.
#pragma once

#include <cstdint>

namespace dslaunch::graph {

// kFull: the user trusts who made the model (--trust-model).
enum class Trust : uint8_t { kNone, kFull };

constexpr Trust trust_of(bool is_trusted) {
    return is_trusted ? Trust::kFull : Trust::kNone;
}

}  // namespace dslaunch::graph
