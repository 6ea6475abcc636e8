#include "runtime/comm/device_backend.h"

#include "base/machine/plugin.h"

namespace dslaunch::runtime {

std::string own_device_plugin() {
    return own_plugin("libdsl_cuda.so");
}

DeviceBackendPtr open_device_backend(const std::string& path, int device) {
    constexpr PluginKind kKind = {
        .name = "GPU",
        .entry = "dsl_device_plugin",
        .version = kDevicePluginVersion,
        .remedy = "build with a CUDA toolkit and NCCL, or use --device cpu",
        .shares_symbols = true};
    const auto& plugin = *static_cast<const DevicePlugin*>(open_plugin(path, kKind));
    return {plugin.create(device), DeviceBackendDeleter{plugin.destroy}};
}

}  // namespace dslaunch::runtime
