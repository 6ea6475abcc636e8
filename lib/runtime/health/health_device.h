// The operations of `dslaunch health` over a GPU's backend: NCCL in the plugin, memory in the
// test's fake. sweep -> [here] -> DeviceBackend. One thread.
#pragma once

#include <c10/core/Device.h>

#include <memory>

#include "runtime/comm/device_backend.h"
#include "runtime/comm/health_collectives.h"

namespace dslaunch::runtime {

// BACKEND has joined its group; buffers are made on DEVICE. The backend must outlive the result.
[[nodiscard]] std::unique_ptr<HealthCollectives> make_device_collectives(DeviceBackend& backend,
                                                                         c10::Device device);

}  // namespace dslaunch::runtime
