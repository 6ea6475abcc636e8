// Which device a rank computes on, and the GPU's backend where it is one. Comes before the model is
// loaded: LibTorch learns of its CUDA library when the plugin is opened, and only then may a tensor
// be made there. run config and worker environment -> [here] -> model. One thread.
#pragma once

#include <c10/core/Device.h>

#include <string>
#include <string_view>

#include "config/run/run_config.h"
#include "launch/plan/worker_environment.h"
#include "runtime/comm/device_backend.h"

namespace dslaunch::runtime {

struct RankDevice {
    c10::Device device = c10::kCPU;
    DeviceBackendPtr backend;  // null on the CPU
    double peak_tflops = 0;    // of fp32 products, 0: not known
};

// What dslaunch.device comes to: `auto` is a GPU where the environment gives this rank one and the
// machine has GPU_COUNT > 0 of them. Pure.
[[nodiscard]] bool wants_gpu(config::DeviceChoice choice,
                             const launch::WorkerEnvironment& environment, int64_t gpu_count);

// The entry of CUDA_VISIBLE_DEVICES that is this rank's: the one at its local rank, or the only
// one. Throws Error{kSetup} when there are fewer than local ranks.
[[nodiscard]] std::string own_gpu(const launch::WorkerEnvironment& environment);

// Throws Error{kConfig} naming what CONFIG asks for that a GPU rank cannot do yet.
void check_gpu_support(const config::RunConfig& config);

// Opens the plugin at PLUGIN_PATH where CONFIG and ENVIRONMENT want a GPU. From then on this
// process sees that GPU alone, as device 0. Throws Error{kConfig} as above, Error{kSetup} when the
// machine has no GPU or the plugin cannot use it.
[[nodiscard]] RankDevice open_rank_device(const config::RunConfig& config,
                                          const launch::WorkerEnvironment& environment,
                                          const std::string& plugin_path);

// Dense fp32 products without tensor cores, from NVIDIA's data sheets; 0 for a name that is not in
// the table.
[[nodiscard]] double peak_fp32_tflops(std::string_view device_name);

}  // namespace dslaunch::runtime
