// Values of a pickle in the slots of TorchScript objects. LibTorch's unpickler puts any value into
// any slot, and its interpreter takes a slot's type for granted. Part of mapped_archive.h. Pure.
#pragma once

#include <ATen/core/ivalue.h>

#include "storage/pickle/restricted_unpickler.h"

namespace dslaunch::graph {

// Throws Error{kInput} that names the class and the attribute if a slot of OBJECT holds a value of
// another type than its class says. The slots of objects in it were checked when they were made.
void check_slots(const c10::ivalue::Object& object);

// Returns true if TYPE is an enumeration and VALUE is the value of one of its enumerators.
[[nodiscard]] bool has_enumerator(const c10::Type& type, const storage::PickleValue& value);

}  // namespace dslaunch::graph
