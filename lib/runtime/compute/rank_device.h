// The device that a rank computes on, and the GPU's backend if it is one. It comes before the model
// is loaded: LibTorch learns of its CUDA library when the plugin is opened, and only then may a
// tensor be made there. Data path: run config and worker environment -> [here] -> model. One
// thread.
#pragma once

#include <c10/core/Device.h>

#include <string>
#include <string_view>

#include "config/run/run_config.h"
#include "launch/plan/worker_environment.h"
#include "plan/predict/known_devices.h"
#include "runtime/comm/device_backend.h"

namespace dslaunch::runtime {

struct RankDevice {
    c10::Device device = c10::kCPU;
    DeviceBackendPtr backend;  // null on the CPU
    plan::DeviceRates rates;   // of a GPU that is known by its name
    double peak_tflops = 0;    // peak of the products that the rank trains with; 0: not known
};

// Returns true if dslaunch.device resolves to a GPU. `auto` does if the environment gives this rank
// a GPU and the machine has GPU_COUNT > 0 of them. Pure.
[[nodiscard]] bool wants_gpu(config::DeviceChoice choice,
                             const launch::WorkerEnvironment& environment, int64_t gpu_count);

// Returns this rank's entry of CUDA_VISIBLE_DEVICES: the one at its local rank, or the only one.
// Throws Error{kSetup} if there are fewer entries than local ranks.
[[nodiscard]] std::string own_gpu(const launch::WorkerEnvironment& environment);

// Makes own_gpu() the only GPU that CUDA and NCCL see in this process, which both number it 0.
// Nothing changes if there is no such entry. REQUIRES: no other thread runs, for the environment is
// written.
void hide_other_gpus(const launch::WorkerEnvironment& environment);

// Throws own_gpu()'s Error{kSetup}. REQUIRES: hide_other_gpus() was called.
void require_own_gpu(const launch::WorkerEnvironment& environment);

// Throws Error{kConfig} naming the settings of CONFIG that a GPU rank cannot honour yet.
void check_gpu_support(const config::RunConfig& config);

// Sets whether GPUs may round the factors of products and convolutions in fp32 to TF32, in this
// process. Sums of products in 16 bit stay as PyTorch's default has them.
void allow_tf32(bool allowed);

// Returns the device of LibTorch's on which BACKEND works, the first that the process sees.
// REQUIRES: no tensor was made before the plugin was opened.
[[nodiscard]] c10::Device torch_device(const DeviceBackend& backend);

// Opens the plugin at PLUGIN_PATH if CONFIG and ENVIRONMENT want a GPU, which is device 0 after
// hide_other_gpus(). Throws check_gpu_support's Error{kConfig}, and Error{kSetup} if the machine
// has no GPU or the plugin cannot use it.
[[nodiscard]] RankDevice open_rank_device(const config::RunConfig& config,
                                          const launch::WorkerEnvironment& environment,
                                          const std::string& plugin_path);

}  // namespace dslaunch::runtime
