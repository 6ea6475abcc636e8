// The calls in a pickle of torch.jit.save as LibTorch's unpickler makes them, and no others: what
// passes here has the arguments that LibTorch takes without looking at them. Used by
// restricted_unpickler.h. Pure.
#pragma once

#include <string>

#include "storage/pickle/pickle_names.h"

namespace dslaunch::storage {

struct ScriptCall {
    std::string fault = {};             // not empty: it is refused
    const PickleValue* same = nullptr;  // the argument that the call returns
    PickleValue value = {};             // if it returns another
};

// FUNCTION: a value of the pickle, called with ARGUMENT.
[[nodiscard]] ScriptCall script_call(const PickleValue& function, const PickleValue& argument);

}  // namespace dslaunch::storage
