#include "runtime/comm/device_backend.h"

#include <dlfcn.h>

#include <filesystem>

#include "base/error.h"

namespace dslaunch::runtime {

std::string own_device_plugin() {
    const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe");
    return (program.parent_path() / "libdsl_cuda.so").string();
}

DeviceBackendPtr open_device_backend(const std::string& path, int device) {
    // The plugin's libraries keep threads and thread-local data, so it is never closed.
    void* const library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
    if (library == nullptr)
        fail(ExitCode::kSetup,
             "the GPU plugin cannot be opened: {}; build with a CUDA toolkit and NCCL, or use "
             "--device cpu",
             ::dlerror());
    const auto entry = reinterpret_cast<DevicePluginEntry>(::dlsym(library, "dsl_device_plugin"));
    if (entry == nullptr) fail(ExitCode::kSetup, "{}: is not a GPU plugin of dslaunch", path);
    const DevicePlugin& plugin = *entry();
    if (plugin.version != kDevicePluginVersion)
        fail(ExitCode::kSetup,
             "{}: has version {}, this dsworker needs {}: they come from different builds", path,
             plugin.version, kDevicePluginVersion);
    return {plugin.create(device), DeviceBackendDeleter{plugin.destroy}};
}

}  // namespace dslaunch::runtime
