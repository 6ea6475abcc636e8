// libdsl_test_device.so: the plugin of a GPU (runtime/comm/device_backend.h) whose GPU is a test
// device. With it, whole jobs of dsworker processes run on machines without a GPU. Tests put it in
// the CUDA plugin's place (test_gpus.h). Ranks meet through files in the folder `meetings` beside
// it.
#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>

#include "base/check.h"
#include "base/error.h"
#include "base/text.h"
#include "support/device/file_meeting.h"
#include "support/device/test_backend.h"
#include "support/device/test_device.h"

extern "C" __attribute__((visibility("default"))) const dslaunch::runtime::DevicePlugin*
dsl_device_plugin();

namespace dslaunch::test {
namespace {

std::string folder_of_meetings() {
    Dl_info info{};
    DSL_CHECK(::dladdr(reinterpret_cast<const void*>(&dsl_device_plugin), &info) != 0,
              "the plugin does not find itself");
    return std::filesystem::path(info.dli_fname).parent_path().string() + "/meetings";
}

std::string setting(const char* variable) {
    const char* const value = std::getenv(variable);
    return value == nullptr ? "" : value;
}

// Returns the size of the device's memory, which TEST_DEVICE_MEMORY gives in MiB.
Bytes memory_setting() {
    const std::string text = setting("TEST_DEVICE_MEMORY");
    const auto number = parse_int(text);
    if (text.empty()) return gib(1);
    DSL_CHECK(number && *number > 0, "TEST_DEVICE_MEMORY={}", text);
    return mib(*number);
}

// The parts that a backend uses. They are destroyed after it.
struct Parts {
    explicit Parts(uint64_t seed)
        : meeting({folder_of_meetings(), !setting("TEST_DEVICE_ABORT_IS_LOST").empty()}),
          device(0, seed) {}

    FileMeeting meeting;
    TestDevice device;
};

class RankBackend final : private Parts, public TestBackend {
  public:
    explicit RankBackend(uint64_t seed)
        : Parts(seed), TestBackend(meeting, seed, 0, &device.compute()) {
        set_memory(memory_setting());
    }
};

runtime::DeviceBackend* create(int index) {
    if (index != 0) fail(ExitCode::kSetup, "test device {} is asked for, there is one", index);
    const auto seed = static_cast<uint64_t>(::getpid());
    return std::make_unique<RankBackend>(seed).release();
}

void destroy(runtime::DeviceBackend* backend) {
    const std::unique_ptr<runtime::DeviceBackend> owner(backend);
}

}  // namespace
}  // namespace dslaunch::test

const dslaunch::runtime::DevicePlugin* dsl_device_plugin() {
    static constexpr dslaunch::runtime::DevicePlugin kPlugin{
        dslaunch::runtime::kDevicePluginVersion, &dslaunch::test::create, &dslaunch::test::destroy};
    return &kPlugin;
}
