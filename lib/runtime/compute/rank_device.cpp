#include "runtime/compute/rank_device.h"

#include <ATen/Context.h>
#include <fmt/format.h>

#include <cstdlib>

#include "base/check.h"
#include "base/error.h"
#include "base/text.h"
#include "config/run/gpu_faults.h"
#include "launch/machine/gpu_use.h"
#include "launch/plan/launch_plan.h"

namespace dslaunch::runtime {

bool wants_gpu(config::DeviceChoice choice, const launch::WorkerEnvironment& environment,
               int64_t gpu_count) {
    if (choice != config::DeviceChoice::kAuto) return choice == config::DeviceChoice::kCuda;
    return gpu_count > 0 && !launch::visible_device_list(environment.devices, 0).empty();
}

std::string own_gpu(const launch::WorkerEnvironment& environment) {
    const std::vector<std::string> visible = launch::visible_device_list(environment.devices, 0);
    // If the launcher shows each rank only its own GPU, there is only one entry.
    if (visible.size() == 1) return visible.front();
    if (static_cast<size_t>(environment.local_rank) >= visible.size())
        fail(ExitCode::kSetup,
             "rank {} is local rank {} but CUDA_VISIBLE_DEVICES=`{}` shows {} GPU(s); give each "
             "local rank one, or use --device cpu",
             environment.rank, environment.local_rank, printable(environment.devices),
             visible.size());
    return visible[environment.local_rank];
}

void hide_other_gpus(const launch::WorkerEnvironment& environment) {
    const std::vector<std::string> visible = launch::visible_device_list(environment.devices, 0);
    const auto local = static_cast<size_t>(environment.local_rank);
    if (visible.size() != 1 && local >= visible.size()) return;
    ::setenv(launch::kDevicesVariable, own_gpu(environment).c_str(), /*overwrite=*/1);
}

void require_own_gpu(const launch::WorkerEnvironment& environment) {
    const std::string own = own_gpu(environment);
    const char* const seen = std::getenv(launch::kDevicesVariable);
    DSL_CHECK(seen != nullptr && seen == own,
              "CUDA_VISIBLE_DEVICES of this process does not name its own GPU");
}

void check_gpu_support(const config::RunConfig& config) {
    std::string text;
    for (const config::GpuFault& fault : config::gpu_faults(config))
        text += fmt::format("{}{}: {}", text.empty() ? "" : "\n", fault.path, fault.message);
    if (!text.empty()) fail(ExitCode::kConfig, "{}", text);
}

void allow_tf32(bool allowed) {
    // Sets convolutions as well, since LibTorch by default uses TF32 for fp32 convolutions.
    at::globalContext().setAllowTF32CuDNN(allowed);
    at::globalContext().setAllowTF32CuBLAS(allowed);
}

c10::Device torch_device(const DeviceBackend& backend) {
    const auto type = static_cast<c10::DeviceType>(backend.torch_device_type());
    // LibTorch looks for its CUDA library only once, in the first tensor operation that needs it.
    DSL_CHECK(type != c10::kCUDA || at::globalContext().hasCUDA(),
              "LibTorch looked for its CUDA library before the GPU plugin was opened");
    return {type, 0};
}

RankDevice open_rank_device(const config::RunConfig& config,
                            const launch::WorkerEnvironment& environment,
                            const std::string& plugin_path) {
    const int64_t gpu_count = launch::count_gpus();
    if (!wants_gpu(config.device, environment, gpu_count)) return {};
    check_gpu_support(config);
    if (gpu_count == 0)
        fail(ExitCode::kSetup,
             "dslaunch.device: cuda: found no GPU on this machine (looked for {}); run on a "
             "machine with a GPU, or use --device cpu",
             launch::kGpuDevicePattern);
    require_own_gpu(environment);
    RankDevice rank;
    rank.backend = open_device_backend(plugin_path, 0);
    rank.device = torch_device(*rank.backend);
    allow_tf32(config.tf32);
    rank.rates = plan::rates_of_device(rank.backend->device_name());
    rank.peak_tflops = rank.rates.flops_per_s(config.precision.compute, config.tf32) / 1e12;
    return rank;
}

}  // namespace dslaunch::runtime
