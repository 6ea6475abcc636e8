// Whole jobs of dsworker processes that compute on test devices. They train, evaluate, save, resume
// and write as the same jobs on the CPU do.
#include <ATen/core/Tensor.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/serialization/import.h>

#include "fixture_runs.h"
#include "support/device/test_gpus.h"
#include "support/saving_job.h"

namespace dslaunch::test {
namespace {

// Attention uses other operators on a test device than on the CPU, so losses are equal only up to
// rounding: the rounding of fp32, or of autocast's 8 bits through three layers.
constexpr double kRounding = 1e-5;
constexpr double kHalfRounding = 5e-3;

// A job of six steps, saved and evaluated after the third and the last.
struct JobShape {
    const char* what;
    int ranks = 2;
    Json changes = Json::object();  // merged into the config
    double tolerance = kRounding;
    Json on_devices = Json::object();  // merged into the config of the job on devices only
    bool are_hosts = false;            // each rank has its own pretended host
};

void give_shape(SavingJob& job, const JobShape& shape, bool on_devices = false) {
    job.steps = 6;
    job.eval_interval = 3;
    job.ranks = shape.are_hosts ? 1 : shape.ranks;  // number of ranks on each host
    if (shape.are_hosts) job.more = hosts(job.folder, std::vector<int>(shape.ranks, 1));
    job.change = [shape, on_devices](Json& config) {
        config.merge_patch(shape.changes);
        if (on_devices) config.merge_patch(shape.on_devices);
    };
}

void run_on_devices(const SavingJob& job, const TestGpus& gpus, bool resume = false) {
    JobProcess process(job.folder, gpus.on_devices(job.command(resume)));
    const int code = process.wait();
    INFO(process.err());
    REQUIRE(code == 0);
    CHECK(process.err().find("GPU: test") != std::string::npos);
}

// Returns the mean distance between the trainable parameters of two archives.
double distance(const std::string& a, const std::string& b) {
    const torch::jit::Module first = torch::jit::load(a), second = torch::jit::load(b);
    double sum = 0, numel = 0;
    auto other = second.named_parameters().begin();
    for (const auto& parameter : first.named_parameters()) {
        const at::Tensor apart = (parameter.value - (*other).value).abs().sum();
        sum += apart.item<double>();
        numel += static_cast<double>(parameter.value.numel());
        ++other;
    }
    return sum / numel;
}

void check_alike(const std::map<int64_t, double>& device, const std::map<int64_t, double>& host,
                 double tolerance) {
    REQUIRE(device.size() == host.size());
    for (const auto& [step, loss] : host) {
        INFO("step " << step);
        CHECK(device.at(step) == Approx(loss).epsilon(tolerance));
    }
}

void check_shape(const JobShape& shape) {
    const TestGpus gpus(shape.ranks, std::string("whole jobs on devices: ") + shape.what);
    if (!gpus.usable()) return;
    INFO(shape.what);
    SavingJob there, here;
    give_shape(there, shape, /*on_devices=*/true);
    give_shape(here, shape);
    run_on_devices(there, gpus);
    run_to_end(here);
    REQUIRE(here.losses().size() == 6);
    check_alike(there.losses(), here.losses(), shape.tolerance);
    const std::vector<double> there_held = values_in(metrics_in(there.output()), "eval_loss"),
                              here_held = values_in(metrics_in(here.output()), "eval_loss");
    REQUIRE(here_held.size() == 3);
    REQUIRE(there_held.size() == 3);
    for (size_t i = 0; i < 3; ++i)
        CHECK(there_held[i] == Approx(here_held[i]).epsilon(shape.tolerance));
    // If the gradient of an element is near zero, Adam's step may have either sign. Single elements
    // may therefore differ, but the mean distance stays small.
    const std::string weights = there.output() + "/model.pt",
                      expected = here.output() + "/model.pt";
    const double moved = distance(expected, fixture_archive(here.model));
    CHECK(moved > 1e-4);
    CHECK(distance(weights, expected) < 10 * shape.tolerance * moved + 0.01 * moved);
    CHECK(newest_whole(there.output()) == 6);
}

Json zero_stage(int number) {
    return {{"zero_optimization", {{"stage", number}}}};
}

}  // namespace

TEST_CASE("two processes with a device each train what they train on the CPU") {
    check_shape({"ZeRO 2", 2, zero_stage(2)});
    Json half = zero_stage(3);
    half["bf16"] = {{"enabled", true}};
    check_shape({"ZeRO 3 in bf16", 2, half, kHalfRounding});
}

TEST_CASE("adapters beside a base in few bits train on devices as on the CPU") {
    const TestGpus gpus(2, "adapters beside a base in few bits on devices");
    if (!gpus.usable()) return;
    for (const char* base : {"nf4", "int4", "int8"}) {
        INFO(base);
        JobShape shape{base, 2, zero_stage(3)};
        shape.changes["dslaunch"] = {{"lora", {{"r", 4}, {"base", base}}}};
        SavingJob there, here;
        give_shape(there, shape, /*on_devices=*/true);
        give_shape(here, shape);
        run_on_devices(there, gpus);
        run_to_end(here);
        REQUIRE(here.losses().size() == 6);
        check_alike(there.losses(), here.losses(), kRounding);
        // A base that is not packed gives other losses. So the packed base was really used.
        SavingJob exact;
        shape.changes["dslaunch"]["lora"]["base"] = "as_is";
        give_shape(exact, shape);
        run_to_end(exact);
        CHECK(std::fabs(exact.losses().at(6) / here.losses().at(6) - 1) > 10 * kRounding);
    }
}

TEST_CASE("two processes with a device each train alike at more stages", "[.long]") {
    for (const int stage : {0, 1, 3}) check_shape({"fp32", 2, zero_stage(stage)});
}

TEST_CASE("devices in groups of shards, and on several hosts, train what the CPU does") {
    const Json groups = {{"zero_optimization", {{"mics_shard_size", 2}}}};
    check_shape({"ZeRO 3 in two groups of shards", 4, zero_stage(3), kRounding, groups});
    check_shape({.what = "ZeRO 1 on two hosts", .changes = zero_stage(1), .are_hosts = true});
}

TEST_CASE("a job on devices goes on on the CPU, and one of the CPU on devices") {
    const TestGpus gpus(2, "a checkpoint from devices to the CPU and back");
    if (!gpus.usable()) return;
    const JobShape shape{"", 2, zero_stage(3)};
    SavingJob whole;
    give_shape(whole, shape);
    run_to_end(whole);
    for (const bool begins_on_device : {true, false}) {
        INFO("the first three steps on " << (begins_on_device ? "devices" : "the CPU"));
        SavingJob job;
        give_shape(job, shape);
        job.steps = 3;
        if (begins_on_device) {
            run_on_devices(job, gpus);
        } else {
            run_to_end(job);
        }
        REQUIRE(newest_whole(job.output()) == 3);
        job.steps = 6;
        if (begins_on_device) {
            JobProcess process(job.folder, job.command(/*resume=*/true));
            const int code = process.wait();
            INFO(process.err());
            REQUIRE(code == 0);
        } else {
            run_on_devices(job, gpus, /*resume=*/true);
        }
        check_alike(job.losses(), whole.losses(), kRounding);
    }
}

TEST_CASE("generate writes the same tokens on a device as on the CPU") {
    const TestGpus gpus(1, "generate on a device");
    if (!gpus.usable()) return;
    const TemporaryFolder folder;
    const std::string model = folder.path() + "/gpt.pt";
    JobProcess made(folder, {kDslaunch, "model", "new", "gpt", "--vocab", "61", "--width", "32",
                             "--heads", "2", "--layers", "2", "--context", "24", "-o", model});
    REQUIRE(made.wait() == 0);
    const std::vector<std::string> words = {"generate", model, "--prompt-ids",  "3,1,4",
                                            "--tokens", "30",  "--as",          "ids",
                                            "--seed",   "5",   "--temperature", "0.7"};
    const auto text_of = [&](std::vector<std::string> command, const std::string& device) {
        command.insert(command.end(), words.begin(), words.end());
        command.insert(command.end(), {"--device", device});
        JobProcess process(folder, device == "cpu" ? command : gpus.inside(command));
        const int code = process.wait();
        INFO(process.err());
        REQUIRE(code == 0);
        return process.out();
    };
    const std::string expected = text_of({kDslaunch}, "cpu");
    CHECK(std::ranges::count(expected, ' ') == 30);
    CHECK(text_of({gpus.program("dslaunch")}, "cuda") == expected);
}

}  // namespace dslaunch::test
