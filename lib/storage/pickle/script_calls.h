// Checks the calls in a pickle of torch.jit.save. Allows only calls that LibTorch's unpickler
// knows, and only with the arguments that each call expects, because LibTorch does not check
// arguments. Used by pickle.h. Pure.
#pragma once

#include <string>

#include "storage/pickle/pickle_names.h"

namespace dslaunch::storage {

// The result of a call, or the reason why it is refused.
struct ScriptCall {
    std::string fault = {};             // the reason for a refusal; empty if the call is allowed
    const PickleValue* same = nullptr;  // the argument, if the call returns it unchanged
    PickleValue value = {};             // the result, if the call returns no argument
};

// Calls FUNCTION, which is a value of the pickle, with ARGUMENT. Returns the result.
[[nodiscard]] ScriptCall script_call(const PickleValue& function, const PickleValue& argument);

}  // namespace dslaunch::storage
