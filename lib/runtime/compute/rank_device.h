// The device that a rank computes on, and the GPU's backend if it is a GPU. It is opened before the
// model is loaded: opening the plugin makes LibTorch's CUDA library known to LibTorch, and only
// then may tensors be made on the GPU. Data path: run config and worker environment -> [here] ->
// model. One thread.
#pragma once

#include <c10/core/Device.h>

#include <string>
#include <string_view>

#include "config/run/run_config.h"
#include "launch/plan/worker_environment.h"
#include "plan/predict/known_devices.h"
#include "runtime/comm/device_backend.h"

namespace dslaunch::runtime {

// The device on which a rank trains.
struct RankDevice {
    c10::Device device = c10::kCPU;
    DeviceBackendPtr backend;  // null on the CPU
    plan::DeviceRates rates;   // known for some GPUs, by name
    double peak_tflops = 0;    // peak of matrix products in the rank's dtype; 0 if not known
};

// Returns true if dslaunch.device resolves to a GPU. `auto` does so if the environment gives this
// rank a GPU and the machine has GPU_COUNT > 0 GPUs. Pure.
[[nodiscard]] bool wants_gpu(config::DeviceChoice choice,
                             const launch::WorkerEnvironment& environment, int64_t gpu_count);

// Returns this rank's entry of CUDA_VISIBLE_DEVICES: the entry at its local rank, or the only one.
// Throws Error{kSetup} if there are fewer entries than local ranks.
[[nodiscard]] std::string own_gpu(const launch::WorkerEnvironment& environment);

// Makes own_gpu() the only GPU that CUDA and NCCL see in this process, where its number is 0. Does
// nothing if this rank has no entry. REQUIRES: no other thread runs, because it changes the
// environment.
void hide_other_gpus(const launch::WorkerEnvironment& environment);

// Throws the Error{kSetup} of own_gpu() if this rank has no GPU of its own. REQUIRES:
// hide_other_gpus() was called.
void require_own_gpu(const launch::WorkerEnvironment& environment);

// Throws Error{kConfig}, naming the settings of CONFIG that a rank with a GPU does not support yet.
void check_gpu_support(const config::RunConfig& config);

// Sets whether GPUs may round the operands of fp32 products and convolutions to TF32, in this
// process. Sums in 16-bit products keep PyTorch's default.
void allow_tf32(bool allowed);

// Returns LibTorch's name for the device of BACKEND, the first device that the process sees.
// REQUIRES: no tensor was made before the plugin was opened.
[[nodiscard]] c10::Device torch_device(const DeviceBackend& backend);

// Opens the plugin at PLUGIN_PATH if CONFIG and ENVIRONMENT want a GPU. The plugin then uses device
// 0, the only GPU that is left after hide_other_gpus(). Throws check_gpu_support's Error{kConfig},
// and Error{kSetup} if the machine has no GPU or the plugin cannot use it.
[[nodiscard]] RankDevice open_rank_device(const config::RunConfig& config,
                                          const launch::WorkerEnvironment& environment,
                                          const std::string& plugin_path);

}  // namespace dslaunch::runtime
