// The GPU that a rank takes, and its error if there is none.
#include "runtime/compute/rank_device.h"

#include <ATen/Context.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <c10/core/ScalarType.h>

#include <cmath>
#include <cstdlib>

#include "base/error.h"
#include "kernels/flat_optimizer.h"
#include "launch/machine/gpu_use.h"
#include "support/catch.h"
#include "support/skip.h"
#include "support/text_tools.h"

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
    // There is no third GPU, which is an error once a GPU is wanted.
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
        CHECK_THAT(test::error_of(ExitCode::kSetup, [&] { (void)own_gpu(local_rank(2, devices)); }),
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
    CHECK_THAT(test::error_of(ExitCode::kSetup,
                              [&] { (void)open_rank_device(config, local_rank(0, "0"), "none"); }),
               Catch::Contains("/dev/nvidia0"));
}

TEST_CASE("dslaunch.tf32 decides on products and convolutions in fp32, and on nothing else") {
    const at::Context& settings = at::globalContext();
    const auto in_16_bit = [&] {
        return std::pair{settings.allowFP16ReductionCuBLAS(), settings.allowBF16ReductionCuBLAS()};
    };
    const auto before = in_16_bit();
    for (const bool allowed : {true, false}) {
        allow_tf32(allowed);
        CHECK(settings.allowTF32CuDNN() == allowed);
        CHECK(settings.allowTF32CuBLAS() == allowed);
        CHECK((in_16_bit() == before));
    }
}

TEST_CASE("what a GPU rank cannot do yet is refused by name") {
    RunConfig config;
    check_gpu_support(config);
    for (const OffloadDevice device : {OffloadDevice::kCpu, OffloadDevice::kNvme}) {
        config.offload.optimizer = device;
        CHECK_THAT(
            test::error_of(ExitCode::kConfig, [&] { check_gpu_support(config); }),
            Catch::Contains("zero_optimization.offload_optimizer: is not available on a GPU"));
        config.offload.optimizer = OffloadDevice::kNone;
        config.offload.parameters = device;
        CHECK_THAT(test::error_of(ExitCode::kConfig, [&] { check_gpu_support(config); }),
                   Catch::Contains("zero_optimization.offload_param: is not available on a GPU"));
        config.offload.parameters = OffloadDevice::kNone;
    }
    config.zero.stage = 2;
    check_gpu_support(config);
    config.zero.shard_ranks = 2;
    check_gpu_support(config);
}

}  // namespace dslaunch
