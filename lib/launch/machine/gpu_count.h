// The number of GPUs that this machine shows to its processes, without any CUDA library: what the
// launcher and the agents decide on before a worker exists. No state.
#pragma once

#include <cstdint>
#include <string>

namespace dslaunch::launch {

inline constexpr const char* kGpuDevicePattern = "/dev/nvidia0, /dev/nvidia1, …";

// Device nodes nvidiaN below DIRECTORY: a container shows those it was given, the driver's own list
// in /proc all of the host's. 0 when the folder cannot be read.
[[nodiscard]] int64_t count_gpus(const std::string& directory = "/dev");

}  // namespace dslaunch::launch
