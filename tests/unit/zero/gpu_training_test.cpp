// Training on a real GPU, compared with the CPU. The file is a test program of its own: LibTorch
// looks for its CUDA library only once, so the plugin must be opened before the first CPU backward
// of the process.
#include "device_rank.h"
#include "fixture_world.h"
#include "launch/machine/gpu_use.h"
#include "support/catch.h"
#include "support/skip.h"

namespace dslaunch {

using namespace launch;
using namespace runtime;

namespace {

using testing::RankOutcome;
using testing::TrainingCase;

// Trains one rank on a real GPU.
RankOutcome train_on_gpu(TrainingCase job, DeviceBackend& backend) {
    job = testing::on_device(std::move(job), c10::Device(c10::kCUDA, 0));
    testing::InProcessWorld world({job.node_sizes, std::chrono::seconds(60)}, [](ArenaLayout&) {});
    RankOutcome outcome;
    testing::run_world(world, [&](testing::InProcessRank& self, int) {
        outcome = testing::train_device_rank(job, /*usage_varies=*/true, backend,
                                             c10::Device(c10::kCUDA, 0), *self.collectives);
    });
    return outcome;
}

}  // namespace

// A GPU adds up products in another order. A bound of 1e-3 on a loss after three steps is far above
// this effect, and far below the effect of a wrong gradient. Dropout draws other numbers there.
TEST_CASE("every fixture without dropout trains on a GPU to the losses of the CPU") {
    if (count_gpus() == 0) {
        test::report_skipped("training the fixtures on a GPU", "this machine has no GPU");
        return;
    }
    const DeviceBackendPtr backend =
        open_device_backend(std::string(test::binary_dir()) + "/libdsl_cuda.so", 0);
    for (const std::string& name : test::fixture_names()) {
        if (name.find("dropout") != std::string::npos) continue;
        INFO(name);
        const std::vector<double> here =
            testing::train_world(testing::fixture_case(name, {1}))[0].losses();
        const std::vector<double> there =
            train_on_gpu(testing::fixture_case(name, {1}), *backend).losses();
        REQUIRE(there.size() == here.size());
        for (size_t step = 0; step < here.size(); ++step)
            CHECK(there[step] == Approx(here[step]).epsilon(1e-3));
    }
}

// Half precision rounds at other places on a GPU: bf16 keeps 8 bits, fp16 11.
TEST_CASE("stages and precisions train on a GPU to the losses of the CPU") {
    if (count_gpus() == 0) {
        test::report_skipped("training in half precision on a GPU", "this machine has no GPU");
        return;
    }
    const DeviceBackendPtr backend =
        open_device_backend(std::string(test::binary_dir()) + "/libdsl_cuda.so", 0);
    for (int stage = 0; stage <= 3; ++stage)
        for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
            TrainingCase job = testing::fixture_case("gpt", {1});
            job.stage = stage;
            job.accumulation = 2;
            job.micro_step = stage >= 2;
            job.clipping = 0.5;
            job.recompute_groups = stage == 3 ? 2 : 0;
            job.precision.compute = dtype;
            job.precision.skip_nonfinite_steps = dtype == DType::kF16;
            job.precision.loss_scale.dynamic = dtype == DType::kF16;
            job.precision.loss_scale.initial = dtype == DType::kF16 ? 1024 : 1;
            INFO("stage " << stage << " in " << dtype_name(dtype));
            const std::vector<double> here = testing::train_world(job)[0].losses();
            const std::vector<double> there = train_on_gpu(job, *backend).losses();
            REQUIRE(there.size() == here.size());
            const double tolerance = dtype == DType::kF32 ? 1e-3 : 2e-2;
            for (size_t step = 0; step < here.size(); ++step)
                CHECK(there[step] == Approx(here[step]).epsilon(tolerance));
        }
}

}  // namespace dslaunch
