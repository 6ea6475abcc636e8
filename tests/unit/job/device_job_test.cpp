// A whole job of one rank, from archive and config to steps, evaluation, checkpoints and final
// weights, on a test device and on the host. All parts are the ones that dsworker uses.
#include <ATen/Parallel.h>
#include <ATen/ops/equal.h>
#include <torch/csrc/jit/serialization/import.h>

#include "base/error.h"
#include "graph/models/models.h"
#include "job/setup/set_up_job.h"
#include "job_rank.h"
#include "support/catch.h"
#include "support/device/test_backend.h"
#include "support/device/test_device.h"
#include "support/temporary_folder.h"
#include "support/text_tools.h"

namespace dslaunch {

using namespace runtime;
using test::TestBackend;
using test::TestBackendWorld;
using testing::Job;
using testing::job_of;
using testing::Outcome;

namespace {

// The devices must be registered before the first backward of the process.
const bool kRegistered = (test::register_test_devices(), true);

Outcome run_on_host(const Job& job) {
    return testing::Rank(job, nullptr, c10::kCPU).run();
}

Outcome run_on_device(const Job& job, Bytes memory = gib(1)) {
    TestBackendWorld world;
    test::TestDevice device(0, 7);
    TestBackend backend(world, 8, 0, &device.compute());
    backend.set_memory(memory);
    return testing::Rank(job, &backend, device.device()).run();
}

void check_equal_weights(const std::string& a, const std::string& b, double tolerance) {
    const torch::jit::Module first = torch::jit::load(a + "/model.pt");
    const torch::jit::Module second = torch::jit::load(b + "/model.pt");
    auto other = second.named_parameters().begin();
    for (const auto& parameter : first.named_parameters()) {
        INFO(parameter.name);
        CHECK(parameter.value.is_cpu());
        const at::Tensor difference =
            parameter.value.to(at::kFloat) - (*other).value.to(at::kFloat);
        CHECK(difference.abs().max().item<double>() <= tolerance);
        ++other;
    }
}

}  // namespace

// Attention uses other operators on a test device, so losses agree up to rounding.
TEST_CASE("a job on a device trains, evaluates and saves what a job on the host does") {
    at::set_num_threads(1);
    for (const char* extra : {R"("zero_optimization": {"stage": 0},)",
                              R"("zero_optimization": {"stage": 3}, "bf16": {"enabled": true},)"}) {
        INFO(extra);
        const test::TemporaryFolder there, here;
        const Job on_device = job_of(there, extra), on_host = job_of(here, extra);
        const Outcome device = run_on_device(on_device), host = run_on_host(on_host);
        const bool half = std::string(extra).find("bf16") != std::string::npos;
        REQUIRE(device.losses.size() == 4);
        for (size_t step = 0; step < 4; ++step)
            CHECK(device.losses[step] == Approx(host.losses[step]).epsilon(half ? 5e-3 : 1e-5));
        CHECK(device.eval_loss == Approx(host.eval_loss).epsilon(half ? 5e-3 : 1e-5));
        CHECK(device.eval_loss > 0);
        check_equal_weights(on_device.output, on_host.output, 2 * 4 * 0.001);
    }
}

TEST_CASE("a checkpoint of a device's job is resumed on the host") {
    const test::TemporaryFolder folder, whole;
    const Outcome all = run_on_host(job_of(whole, "", 6));
    const Job first = job_of(folder, "", 3);
    static_cast<void>(run_on_device(first));
    Job rest = job_of(folder, "", 6);
    rest.resume = "auto";
    const Outcome resumed = run_on_host(rest);
    REQUIRE(resumed.losses.size() == 3);
    for (size_t step = 0; step < 3; ++step)
        CHECK(resumed.losses[step] == Approx(all.losses[step + 3]).epsilon(1e-5));
}

// Makes a GPT whose backward takes most of its memory for the gradient of 32 x 4,096 logits.
std::string wide_vocabulary(const test::TemporaryFolder& folder) {
    graph::GptOptions gpt;
    gpt.vocab = 4096;
    gpt.width = 16;
    gpt.layers = 2;
    gpt.heads = 2;
    gpt.context = 16;
    std::string path = folder.path() + "/wide.pt";
    graph::make_gpt(gpt).save(path);
    return path;
}

TEST_CASE("the plan counts the memory that a device's job takes") {
    const test::TemporaryFolder folder;
    const std::string wide = wide_vocabulary(folder);
    for (const char* extra : {R"("zero_optimization": {"stage": 2},)",
                              R"("zero_optimization": {"stage": 3}, "bf16": {"enabled": true},)",
                              R"("activation_checkpointing": {"number_checkpoints": 2},)"})
        for (const bool is_wide : {false, true}) {
            const test::TemporaryFolder own;
            Job job = job_of(own, extra);
            if (is_wide) job.model = wide;
            const Outcome outcome = run_on_device(job);
            const double ratio = static_cast<double>(outcome.measured.value) /
                                 static_cast<double>(outcome.planned.value);
            INFO(extra << (is_wide ? " wide: " : " tied: ") << outcome.measured.value
                       << " bytes measured, " << outcome.planned.value << " planned");
            CHECK(ratio > 0.95);
            CHECK(ratio < 1.05);
        }
}

// The parameters and results of one segment are less than half of the model.
TEST_CASE("a device is measured without ever holding the whole model") {
    const test::TemporaryFolder folder;
    graph::GptOptions gpt;
    gpt.vocab = 256;
    gpt.width = 64;
    gpt.layers = 8;
    gpt.heads = 2;
    gpt.context = 4;
    Job job = job_of(folder, "");
    job.model = folder.path() + "/deep.pt";
    graph::make_gpt(gpt).save(job.model);
    test::TestDevice device(0, 7);
    test::DeviceMemory::instance().restart_peak(0);
    job::JobArguments arguments;
    arguments.model_path = job.model;
    arguments.config_path = job.config;
    arguments.overrides = {"dslaunch.data.context=4"};
    arguments.open_device = [&](const config::RunConfig&) { return device.device(); };
    const job::JobSetup setup = job::set_up_job(arguments, Topology{});
    const Bytes model{setup.model_info.parameter_numel() * 4};
    const Bytes peak = test::DeviceMemory::instance().peak(0);
    INFO(to_text(peak) << " of a model of " << to_text(model));
    CHECK(peak.value > 0);
    CHECK(peak.value < model.value / 2);
    for (const plan::SegmentInfo& segment : setup.model_info.segments)
        CHECK(segment.backward_peak + segment.backward_blocks > Bytes{});
    for (const graph::ModelParameter& parameter : setup.model->parameters())
        CHECK(parameter.tensor.is_cpu());
}

TEST_CASE("a job that the device has no memory for is refused before it takes any") {
    const test::TemporaryFolder folder;
    const std::string text = test::error_of(
        ExitCode::kSetup, [&] { static_cast<void>(run_on_device(job_of(folder, ""), mib(34))); });
    CHECK_THAT(text,
               Catch::Contains("memory of a GPU") && Catch::Contains("only 34.0 MiB available"));
}

}  // namespace dslaunch
