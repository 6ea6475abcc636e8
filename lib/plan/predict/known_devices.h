// The memory of GPUs that are known by name, for plans that are made where there is none. Pure.
#pragma once

#include <string>

#include "plan/predict/admission.h"

namespace dslaunch::plan {

// What a process may take of a GPU's memory. TEXT is a size ("24GiB", "24G"), all of which counts,
// or a name of known_devices(), less what CUDA's context takes. Throws Error{kUsage}.
[[nodiscard]] DeviceRoom device_room_of(const std::string& text);

// "H200, H100, …".
[[nodiscard]] std::string known_devices();

}  // namespace dslaunch::plan
