// Checks the values that a pickle puts into the slots (attributes) of TorchScript objects.
// LibTorch's unpickler puts any value into any slot, and its interpreter relies on the slot's type.
// Part of mapped_archive.h. Pure.
#pragma once

#include <ATen/core/ivalue.h>

#include "storage/pickle/pickle.h"

namespace dslaunch::graph {

// Throws Error{kInput}, naming the class and the attribute, if the type of a value in OBJECT's
// slots is not the type that OBJECT's class declares. Objects in its slots were checked when they
// were made.
void check_slots(const c10::ivalue::Object& object);

// Returns true if TYPE is an enumeration and VALUE is the value of one of its enumerators.
[[nodiscard]] bool has_enumerator(const c10::Type& type, const storage::PickleValue& value);

}  // namespace dslaunch::graph
