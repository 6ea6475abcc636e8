// Autocast's switches, as <ATen/autocast_mode.h> declares them: that header includes every operator
// and takes 15 s to compile. Each thread has its own switches.
#pragma once

#include <c10/core/DeviceType.h>
#include <c10/core/ScalarType.h>
#include <c10/macros/Export.h>

namespace at::autocast {

// Copies of LibTorch's declarations. The functions read or set the calling thread's autocast
// switch, dtype and cache of casts.
TORCH_API bool is_autocast_enabled(c10::DeviceType device_type);
TORCH_API void set_autocast_enabled(c10::DeviceType device_type, bool enabled);
TORCH_API c10::ScalarType get_autocast_dtype(c10::DeviceType device_type);
TORCH_API void set_autocast_dtype(c10::DeviceType device_type, c10::ScalarType dtype);
TORCH_API bool is_autocast_cache_enabled();
TORCH_API void set_autocast_cache_enabled(bool enabled);

}  // namespace at::autocast
