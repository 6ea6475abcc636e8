// The GPU that a rank takes, and its error if there is none.
#include "runtime/compute/rank_device.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <c10/core/ScalarType.h>

#include <cmath>
#include <cstdlib>

#include "base/error.h"
#include "kernels/flat_optimizer.h"
#include "launch/machine/gpu_count.h"
#include "runtime/cuda_plugin/fused_adam.h"
#include "support/catch.h"
#include "support/skip.h"

namespace dslaunch {

using namespace config;
using namespace kernels;
using namespace launch;
using namespace runtime;
namespace {

WorkerEnvironment local_rank(int local_rank, const std::string& devices) {
    WorkerEnvironment environment;
    environment.local_rank = local_rank;
    environment.devices = devices;
    return environment;
}

template <typename Call>
std::string refusal(ExitCode code, Call&& call) {
    try {
        call();
    } catch (const Error& error) {
        CHECK(error.code() == code);
        return error.what();
    }
    return "accepted";
}

}  // namespace

TEST_CASE("auto is a GPU where this rank was given one and the machine has any") {
    CHECK(wants_gpu(DeviceChoice::kAuto, local_rank(0, "0,1"), 2));
    CHECK_FALSE(wants_gpu(DeviceChoice::kAuto, local_rank(0, ""), 2));
    // gpus= of a hostfile is kept on a machine without GPUs.
    CHECK_FALSE(wants_gpu(DeviceChoice::kAuto, local_rank(0, "2,3"), 0));
    CHECK_FALSE(wants_gpu(DeviceChoice::kAuto, local_rank(0, "-1"), 2));
    CHECK(wants_gpu(DeviceChoice::kCuda, local_rank(0, ""), 0));
    CHECK_FALSE(wants_gpu(DeviceChoice::kCpu, local_rank(0, "0"), 1));
}

TEST_CASE("a process sees its rank's GPU alone") {
    const char* const before = std::getenv("CUDA_VISIBLE_DEVICES");
    const std::string kept = before == nullptr ? "" : before;
    ::setenv("CUDA_VISIBLE_DEVICES", "2,3", 1);
    hide_other_gpus(local_rank(1, "2,3"));
    CHECK(std::string(std::getenv("CUDA_VISIBLE_DEVICES")) == "3");
    CHECK_NOTHROW(require_own_gpu(local_rank(1, "2,3")));
    // There is no third one, which is an error once a GPU is wanted.
    hide_other_gpus(local_rank(2, "2,3"));
    CHECK(std::string(std::getenv("CUDA_VISIBLE_DEVICES")) == "3");
    CHECK_THROWS_AS(require_own_gpu(local_rank(2, "2,3")), Error);
    if (before == nullptr) {
        ::unsetenv("CUDA_VISIBLE_DEVICES");
    } else {
        ::setenv("CUDA_VISIBLE_DEVICES", kept.c_str(), 1);
    }
}

TEST_CASE("a rank's GPU is the visible one at its local rank, or the only one") {
    CHECK(own_gpu(local_rank(0, "2,3")) == "2");
    CHECK(own_gpu(local_rank(1, "2,3")) == "3");
    CHECK(own_gpu(local_rank(1, "GPU-5a,GPU-7f")) == "GPU-7f");
    CHECK(own_gpu(local_rank(3, "6")) == "6");
    for (const char* devices : {"2,3", ""})
        CHECK_THAT(refusal(ExitCode::kSetup, [&] { (void)own_gpu(local_rank(2, devices)); }),
                   Catch::Contains(std::string("CUDA_VISIBLE_DEVICES=`") + devices + "`"));
}

TEST_CASE("a GPU that is asked for and not there is a set-up error that says what was looked for") {
    if (count_gpus() > 0) {
        test::report_skipped("the message without a GPU", "this machine has one");
        return;
    }
    RunConfig config;
    CHECK(open_rank_device(config, local_rank(0, ""), "none").backend == nullptr);
    config.device = DeviceChoice::kCuda;
    CHECK_THAT(refusal(ExitCode::kSetup,
                       [&] { (void)open_rank_device(config, local_rank(0, "0"), "none"); }),
               Catch::Contains("/dev/nvidia0"));
}

TEST_CASE("what a GPU rank cannot do yet is refused by name") {
    RunConfig config;
    check_gpu_support(config);
    for (const OffloadDevice device : {OffloadDevice::kCpu, OffloadDevice::kNvme}) {
        config.offload.optimizer = device;
        CHECK_THAT(
            refusal(ExitCode::kConfig, [&] { check_gpu_support(config); }),
            Catch::Contains("zero_optimization.offload_optimizer: is not available on a GPU"));
        config.offload.optimizer = OffloadDevice::kNone;
        config.offload.parameters = device;
        CHECK_THAT(refusal(ExitCode::kConfig, [&] { check_gpu_support(config); }),
                   Catch::Contains("zero_optimization.offload_param: is not available on a GPU"));
        config.offload.parameters = OffloadDevice::kNone;
    }
    config.zero.stage = 2;
    CHECK_THAT(refusal(ExitCode::kConfig, [&] { check_gpu_support(config); }),
               Catch::Contains("zero_optimization.stage: 2"));
}

TEST_CASE("a peak is known for exact names only") {
    CHECK(peak_fp32_tflops("NVIDIA H200") == 67);
    CHECK(peak_fp32_tflops("NVIDIA H100 80GB HBM3") == 67);
    for (const char* other : {"NVIDIA H100 PCIe", "NVIDIA H200 NVL", "", "fake"})
        CHECK(peak_fp32_tflops(other) == 0);
}

// The plugin's update by ATen's fused kernel on the CPU is compared with our own kernel, whose bits
// are the same on one processor but for the elements that fill no vector; it multiplies where ATen
// divides: a few ulp of a parameter of about 1.
TEST_CASE("the plugin's Adam divides, skips and corrects as the CPU's kernels do") {
    constexpr int64_t kNumel = 37;
    const auto values = [](double start) {
        return (at::arange(kNumel, at::kDouble) * 3.0 + start).sin().to(at::kFloat);
    };
    for (const bool decoupled : {true, false})
        for (const bool correction : {true, false})
            for (const float divisor_value : {1.0F, 3.0F})
                for (const float skip_value : {0.0F, 1.0F}) {
                    at::Tensor p = values(0.1), g = values(0.2), m = values(0.3) * 0.1,
                               v = values(0.4).square() * 0.01;
                    at::Tensor p2 = p.clone(), g2 = g.clone(), m2 = m.clone(), v2 = v.clone();
                    at::Tensor divisor = at::full({1}, divisor_value),
                               skip = at::full({1}, skip_value);
                    DeviceAdam adam{p.mutable_data_ptr<float>(), g.mutable_data_ptr<float>(),
                                    m.mutable_data_ptr<float>(), v.mutable_data_ptr<float>(),
                                    kNumel};
                    adam.gradient_divisor = divisor.mutable_data_ptr<float>();
                    adam.skip = skip.mutable_data_ptr<float>();
                    adam.lr = 0.01;
                    adam.weight_decay = 0.1;
                    adam.decoupled_decay = decoupled;
                    adam.bias_correction = correction;
                    adam.step = 7;
                    fused_adam(adam, c10::kCPU);
                    if (skip_value == 0) {
                        const float* const gradients = g2.const_data_ptr<float>();
                        const auto all = [](at::Tensor& tensor) {
                            return std::span(tensor.mutable_data_ptr<float>(), size_t{kNumel});
                        };
                        adam_step({.numel = kNumel,
                                   .gradients = {&gradients, 1},
                                   .gradient_scale = 1 / divisor_value,
                                   .parameters = all(p2),
                                   .first = all(m2),
                                   .second = all(v2)},
                                  {0.01, 0.9, 0.999, 1e-8, 0.1, decoupled, correction, 7});
                    }
                    INFO("decoupled " << decoupled << " correction " << correction << " divisor "
                                      << divisor_value << " skip " << skip_value);
                    CHECK(at::allclose(p, p2, 0, 5e-7));
                    CHECK(at::allclose(m, m2, 0, 5e-7));
                    CHECK(at::allclose(v, v2, 0, 5e-7));
                }
}

}  // namespace dslaunch
