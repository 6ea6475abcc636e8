// The operations of `dslaunch health` over a GPU's backend: NCCL in the plugin, memory in the
// test's fake. Data path: sweep -> [here] -> DeviceBackend. One thread.
#pragma once

#include <memory>

#include "runtime/comm/device_backend.h"
#include "runtime/comm/health_collectives.h"

namespace dslaunch::runtime {

// COMMUNICATOR is BACKEND's, of all ranks. Both must outlive the result. An operation that takes
// longer than TIME_LIMIT throws Error{kHang}.
[[nodiscard]] std::unique_ptr<PairedCollectives> make_device_health_collectives(
    DeviceBackend& backend, DeviceCommunicator& communicator, Duration time_limit);

}  // namespace dslaunch::runtime
