// The calls in a pickle of torch.jit.save that LibTorch's unpickler makes, and no others. A call
// that passes here has the arguments that LibTorch takes without a check. Used by
// restricted_unpickler.h. Pure.
#pragma once

#include <string>

#include "storage/pickle/pickle_names.h"

namespace dslaunch::storage {

struct ScriptCall {
    std::string fault = {};             // not empty: it is refused
    const PickleValue* same = nullptr;  // the argument that the call returns
    PickleValue value = {};             // the result, if the call returns no argument
};

// Calls FUNCTION, a value of the pickle, with ARGUMENT.
[[nodiscard]] ScriptCall script_call(const PickleValue& function, const PickleValue& argument);

}  // namespace dslaunch::storage
