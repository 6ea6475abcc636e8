// Whole jobs: 50 steps have stock PyTorch's losses; runs are equal to each other, with other
// worlds, hosts and settings too; weights are exported.
#include <ATen/core/Tensor.h>
#include <ATen/ops/equal.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/serialization/import.h>

#include <filesystem>
#include <regex>

#include "fixture_runs.h"
#include "graph/archive/model.h"
#include "support/script_module.h"

namespace dslaunch::test {
namespace {

// Returns the parameters, or the buffers, by name. A tied one is there under each of its names.
std::map<std::string, at::Tensor> tensors_of(const torch::jit::Module& module, bool buffers) {
    std::map<std::string, at::Tensor> tensors;
    if (buffers) {
        for (const auto& item : module.named_buffers()) tensors[item.name] = item.value.detach();
    } else {
        for (const auto& item : module.named_parameters()) tensors[item.name] = item.value.detach();
    }
    return tensors;
}

void check_export(const std::string& name) {
    INFO(name);
    const TemporaryFolder folder;
    train_well(folder, ranks(2), name, fixture_config(fixture_facts(name), 1, 3));
    // LibTorch's own reader does not read exported programs.
    graph::Model model = graph::Model::load(fixture_archive(name));
    const torch::jit::Module before = fixture_archive(name).ends_with(".pt2")
                                          ? model.module()
                                          : torch::jit::load(fixture_archive(name));
    const torch::jit::Module after = torch::jit::load(folder.path() + "/out/model.pt");
    const auto stored = read_safetensors(folder.path() + "/out/model.safetensors");
    size_t names = 0;
    bool moved = false;
    for (const bool buffers : {false, true}) {
        const auto old_tensors = tensors_of(before, buffers),
                   new_tensors = tensors_of(after, buffers);
        REQUIRE(old_tensors.size() == new_tensors.size());
        for (const auto& [key, tensor] : old_tensors) {
            INFO(key);
            REQUIRE(new_tensors.count(key) == 1);
            if (model.is_unsaved(key)) continue;
            REQUIRE(stored.count(key) == 1);
            const at::Tensor trained = new_tensors.at(key).contiguous();
            CHECK(stored.at(key).shape == trained.sizes().vec());
            const std::string bytes(static_cast<const char*>(trained.const_data_ptr()),
                                    trained.nbytes());
            CHECK(stored.at(key).bytes == bytes);
            moved = moved || !at::equal(trained, tensor);
            ++names;
        }
    }
    CHECK(stored.size() == names);
    CHECK(moved);
}

Json sgd(Json config, double lr) {
    config["optimizer"] = {{"type", "SGD"}, {"params", {{"lr", lr}}}};
    return config;
}

}  // namespace

TEST_CASE("50 steps have the losses of stock PyTorch") {
    check_traces(fixture_names(), {{2, 2}}, nullptr);
    check_traces({"gpt"}, {{1, 1}}, nullptr);
    check_traces({"mixture"}, {{2, 1}}, nullptr);
    check_traces({"convnet", "tied-frozen-unused"}, {{3, 1}}, nullptr);
}

TEST_CASE("50 steps have the losses of stock PyTorch in every world of the fixtures", "[.long]") {
    check_traces(fixture_names(), {{1, 1}, {2, 1}, {2, 2}, {3, 1}}, nullptr);
}

TEST_CASE("the same job twice gives equal bytes") {
    for (const std::string name : {"gpt-dropout", "convnet"}) {
        std::string weights;
        std::vector<double> losses;
        for (int run = 0; run < 2; ++run) {
            const TemporaryFolder folder;
            const auto trained =
                train_well(folder, ranks(2), name, fixture_config(fixture_facts(name), 2, 10));
            const std::string bytes = content_of(folder.path() + "/out/model.safetensors");
            REQUIRE(!bytes.empty());
            REQUIRE(trained.losses().size() == 10);
            INFO(name);
            if (run == 1) {
                CHECK(bytes == weights);
                CHECK(trained.losses() == losses);
            }
            weights = bytes;
            losses = trained.losses();
        }
    }
}

TEST_CASE("1 to 5 ranks, and hosts of unequal size, train alike at the same global batch",
          "[matrix]") {
    // A step has 60 samples, one in each micro batch, so the same kernels compute every sample's
    // loss and gradient. With equal parameters, the losses of a step differ only by the order of a
    // sum of 60 doubles (1e-14). A gradient is a sum of 60 fp32 terms in another order, so it errs
    // by at most 60 * 2^-24 = 4e-6 of the sum of their magnitudes. If gradients are below 1, SGD
    // with a rate of 0.1 makes an error of at most 4e-7 in a parameter in each step. In 3 steps, a
    // loss whose gradient has an L1 norm below 20 then changes by less than 3 * 4e-7 * 20 = 2.4e-5.
    constexpr int64_t kSamples = 60;
    const Json facts = fixture_facts("gpt");
    const auto config_of = [&](int64_t world_size) {
        Json config = sgd(fixture_config(facts, kSamples / world_size, 3), 0.1);
        config["train_micro_batch_size_per_gpu"] = 1;
        return config;
    };
    const TemporaryFolder folder;
    const std::vector<double> one = train_well(folder, ranks(1), "gpt", config_of(1)).losses();
    CHECK(one.back() < one.front());
    double largest = 0;
    const auto check = [&](const std::vector<double>& losses) {
        CHECK(std::abs(losses[0] - one[0]) < 1e-13);
        const double difference = largest_difference(losses, one);
        CHECK(difference < 3e-5);
        largest = std::max(largest, difference);
    };
    for (const int count : {2, 3, 4, 5}) {
        if (count % 2 == 0 && !whole_matrix()) continue;
        const TemporaryFolder own;
        INFO(count << " ranks");
        check(train_well(own, ranks(count), "gpt", config_of(count)).losses());
    }
    for (const std::vector<int>& slots : {std::vector<int>{2, 1}, {1, 3}, {2, 1, 2}}) {
        if (slots == std::vector{1, 3} && !whole_matrix()) continue;
        const TemporaryFolder own;
        int count = 0;
        for (const int slot : slots) count += slot;
        INFO(slots.size() << " hosts, " << count << " ranks");
        check(train_well(own, hosts(own, slots), "gpt", config_of(count)).losses());
    }
    std::printf("losses of 1 to 5 ranks on 1 to 3 hosts differ by at most %.2e\n", largest);
}

TEST_CASE("dropout is the same for one rank with two micro steps and two ranks with one") {
    const Json facts = fixture_facts("gpt-dropout");
    const TemporaryFolder first, second;
    const auto one =
        train_well(first, ranks(1), "gpt-dropout", sgd(fixture_config(facts, 2, 4), 0.1)).losses();
    const auto two =
        train_well(second, ranks(2), "gpt-dropout", sgd(fixture_config(facts, 1, 4), 0.1)).losses();
    CHECK(std::abs(one[0] - two[0]) < 1e-13);
    // Different masks would change the losses by 1e-2. The sum of two gradients has only one order.
    CHECK(largest_difference(one, two) < 1e-5);
}

TEST_CASE("recompute and bucket sizes change no bit of a run", "[matrix]") {
    for (const std::string name : {"gpt-dropout", "bert-dropout", "convnet"}) {
        if (name == "bert-dropout" && !whole_matrix()) continue;
        const Json plain = fixture_config(fixture_facts(name), 2, 4);
        Json recomputed = plain, bucketed = plain;
        recomputed["activation_checkpointing"] = {{"number_checkpoints", 2}};
        bucketed["zero_optimization"] = {{"stage", 0}, {"reduce_bucket_size", 5000}};
        std::string weights;
        for (const Json& config : {plain, recomputed, bucketed}) {
            const TemporaryFolder folder;
            train_well(folder, ranks(2), name, config);
            const std::string bytes = content_of(folder.path() + "/out/model.safetensors");
            INFO(name << " " << config.dump());
            if (weights.empty()) weights = bytes;
            CHECK(bytes == weights);
        }
    }
}

TEST_CASE("exported weights have the module's own names and reload to equal tensors") {
    for (const std::string name : {"gpt-tied", "convnet", "tied-frozen-unused", "state"})
        check_export(name);
}

TEST_CASE("every fixture's exported weights reload to equal tensors", "[.long]") {
    for (const std::string& name : fixture_names()) check_export(name);
}

TEST_CASE("a model that cannot learn is refused before a step, and nothing is written") {
    const std::string text =
        "def forward(self, tokens: Tensor, targets: Tensor) -> Tensor:\n"
        "    return (SCALE * tokens.float().mean() - targets.float().mean()) ** 2\n";
    const auto with_scale = [&](const std::string& scale) {
        return text.substr(0, text.find("SCALE")) + scale + text.substr(text.find("SCALE") + 5);
    };
    torch::jit::Module frozen = script_module(with_scale("self.w.sum()"), {{"w", ramp(3)}});
    for (const auto& item : frozen.named_parameters()) item.value.set_requires_grad(false);
    torch::jit::Module unread = script_module(with_scale("2.0"), {{"w", ramp(3)}});
    const std::tuple<const char*, torch::jit::Module, const char*> rows[] = {
        {"frozen", frozen, "forward reads no trainable parameter"},
        {"unread", unread, "forward reads no trainable parameter"},
        {"none", script_module(with_scale("2.0"), {}), "the model has no parameters"},
        {"detached", script_module(with_scale("self.w.sum().detach()"), {{"w", ramp(3)}}),
         "the loss depends on no trainable parameter"},
        {"compared", script_module(with_scale("(self.w > 1).float().sum()"), {{"w", ramp(3)}}),
         "the loss depends on no trainable parameter"},
        {"rows", script_module(with_scale("self.w"), {{"w", ramp(3)}}),
         "forward returns a tensor of 3 elements, not a loss: return their mean"}};
    for (const auto& [name, module, words] : rows) {
        INFO(name);
        const TemporaryFolder folder;
        const std::string archive = folder.path() + "/" + name + ".pt";
        module.save(archive);
        JobProcess job(folder, {kDslaunch, "--num_gpus", "2", "--device", "cpu", archive, "--data",
                                fixture_path("data/kjv.u16.bin"), "--context", "8", "--steps", "2",
                                "--output", folder.path() + "/out"});
        CHECK(job.wait() == 66);
        INFO(job.err());
        CHECK_THAT(job.err(), Catch::Contains(words));
        CHECK_FALSE(std::filesystem::exists(folder.path() + "/out/model.safetensors"));
    }
}

// 20,000 tokens are 624 samples of 32 tokens. 0.1 passes over them, with 8 rows a step, are 7.8
// steps.
TEST_CASE("a config made for Hugging Face's Trainer trains by the words of the command line") {
    const TemporaryFolder folder;
    write_file(folder.path() + "/ds.json",
               R"({"train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto",
                   "gradient_accumulation_steps": "auto", "gradient_clipping": "auto",
                   "bf16": {"enabled": "auto"}, "zero_optimization": {"stage": 2},
                   "optimizer": {"type": "AdamW", "params": {"lr": "auto", "betas": "auto",
                                 "eps": "auto", "weight_decay": "auto"}},
                   "scheduler": {"type": "WarmupDecayLR", "params": {"warmup_min_lr": "auto",
                                 "warmup_max_lr": "auto", "warmup_num_steps": "auto",
                                 "total_num_steps": "auto", "warmup_type": "linear"}},
                   "wall_clock_breakdown": true, "steps_per_print": 4})");
    JobProcess job(folder, {kDslaunch,
                            "--num_gpus",
                            "2",
                            "--device",
                            "cpu",
                            fixture_archive("gpt"),
                            "--deepspeed",
                            folder.path() + "/ds.json",
                            "--data",
                            fixture_path("data/kjv.u16.bin"),
                            "--context",
                            "32",
                            "--output",
                            folder.path() + "/out",
                            "--log-level",
                            "debug",
                            "--num_train_epochs",
                            "0.1",
                            "--per_device_train_batch_size",
                            "4",
                            "--learning_rate",
                            "0.25"});
    const int code = job.wait();
    INFO(job.err());
    REQUIRE(code == 0);
    const std::vector<double> rates = values_in(metrics_in(folder.path() + "/out"), "lr");
    REQUIRE(rates.size() == 8);
    // Updates 0 and 1 warm up to half of the rate; a later update i has (8 - i) / (8 - 2) of the
    // rate. The step after an update shows its rate.
    CHECK(rates[2] == 0.125);
    for (int i = 2; i < 7; ++i) CHECK(rates[i + 1] == Approx(0.25 * (8 - i) / 6));
    for (const char* words :
         {"`auto` means the default of Hugging Face's Trainer", "bf16.enabled false",
          "fp32, ZeRO stage 2, AdamW with lr 0.25, gradients clipped at norm 1",
          "8 steps are 0.103 passes", "step 4: ", "backward "})
        CHECK_THAT(job.err(), Catch::Contains(words));
}

TEST_CASE("--loss alone trains a model whose data have one column that forward does not take") {
    const TemporaryFolder folder;
    JobProcess job(folder,
                   {kDslaunch, "--device", "cpu", fixture_archive("mlp"), "--data",
                    fixture_path("data/digits.safetensors"), "--loss", "cross_entropy", "--set",
                    "dslaunch.data.columns.input=x", "--steps", "2", "--no-output"});
    const int code = job.wait();
    INFO(job.err());
    CHECK(code == 0);
    CHECK(job.out().starts_with("trained 2 steps, loss "));
    CHECK_THAT(job.err(), Catch::Contains("dslaunch: --no-output: no results are kept\n"));
}

TEST_CASE(
    "a training without --output keeps its results in runs/NAME-DATE, and says what is next") {
    const TemporaryFolder folder;
    std::filesystem::copy(fixture_archive("gpt"), folder.path() + "/gpt.pt");
    const auto run = [&](std::vector<std::string> more) {
        std::vector<std::string> words = {"env",
                                          "-C",
                                          folder.path(),
                                          kDslaunch,
                                          "--device",
                                          "cpu",
                                          "gpt.pt",
                                          "--data",
                                          fixture_path("data/kjv.u16.bin"),
                                          "--context",
                                          "8",
                                          "--set",
                                          "train_micro_batch_size_per_gpu=2"};
        words.insert(words.end(), more.begin(), more.end());
        JobProcess job(folder, words);
        const int code = job.wait();
        return std::tuple(code, job.out(), job.err());
    };
    const auto runs = [&] {
        std::vector<std::string> names;
        std::error_code missing;
        for (const auto& entry :
             std::filesystem::directory_iterator(folder.path() + "/runs", missing))
            names.push_back(entry.path().filename().string());
        std::ranges::sort(names);
        return names;
    };
    // A run that fails before its first step leaves nothing, not even the folder of runs.
    CHECK(std::get<0>(run({"--steps", "2", "--set", "dslaunch.loss={\"name\": \"mse\"}"})) != 0);
    CHECK(runs().empty());
    CHECK_FALSE(std::filesystem::exists(folder.path() + "/runs"));

    const auto [code, out, err] = run({"--steps", "2"});
    INFO(out << err);
    REQUIRE(code == 0);
    REQUIRE(runs().size() == 1);
    const std::string made = "runs/" + runs().front();
    CHECK(std::regex_match(runs().front(), std::regex("gpt-[0-9]{8}-[0-9]{6}")));
    for (const char* file : {"model.pt", "model.safetensors", "metrics.jsonl", "run.json",
                             "logs/rank-0.log", "checkpoints/latest"})
        CHECK(std::filesystem::exists(folder.path() + "/" + made + "/" + file));
    // The model's forward takes targets too, so `generate` cannot use it.
    CHECK_THAT(err, !Catch::Contains("next:"));

    // --resume needs the name of a run; the message suggests the newest run.
    const auto [asked, none, advice] = run({"--steps", "3", "--resume"});
    CHECK(asked == 64);
    CHECK_THAT(advice, Catch::Contains("The newest run of gpt is " + made + ": add -o " + made));
    CHECK(std::get<0>(run({"--steps", "3", "--resume", "-o", made})) == 0);
    CHECK(runs().size() == 1);
}

TEST_CASE("what an archive's training names as next works, for bytes and for other tokens") {
    const std::pair<const char*, const char*> rows[] = {{"256", "--prompt \"…\""},
                                                        {"512", "--prompt-ids 5,17,2"}};
    for (const auto& [vocabulary, prompt] : rows) {
        INFO(vocabulary);
        const TemporaryFolder folder;
        const std::string model = folder.path() + "/gpt.pt", output = folder.path() + "/out";
        JobProcess made(folder,
                        {kDslaunch, "model", "new", "gpt", "--vocab", vocabulary, "--width", "16",
                         "--heads", "2", "--layers", "1", "--context", "16", "-o", model});
        REQUIRE(made.wait() == 0);
        JobProcess job(folder, {kDslaunch, "--device", "cpu", "--num_gpus", "1", model, "--data",
                                fixture_path("data/kjv.u16.bin"), "--steps", "1", "-o", output});
        const int code = job.wait();
        const std::string err = job.err();
        INFO(err);
        REQUIRE(code == 0);
        const std::string words = fmt::format("generate {} {}", output, prompt);
        CHECK_THAT(err, Catch::Contains("dslaunch: next: dslaunch " + words + "\n"));
        JobProcess next(folder, {"sh", "-c", fmt::format("{} {} --tokens 1", kDslaunch, words)});
        CHECK(next.wait() == 0);
    }
}

TEST_CASE("a run whose learning rate stays 0 says before its first step that nothing changes") {
    const auto said = [](int steps) {
        const TemporaryFolder folder;
        Json config = fixture_config(fixture_facts("gpt"), 1, steps);
        // The learning rate is 0 in the first two steps.
        config["scheduler"] = {
            {"type", "WarmupCosineLR"},
            {"params", {{"warmup_num_steps", 120}, {"total_num_steps", "auto"}}}};
        const TrainResult result = train(folder, ranks(1), fixture_archive("gpt"), config);
        CHECK(result.code == 0);
        const size_t warning = result.err.find("learning rate is 0 in each of the ");
        if (warning != std::string::npos) CHECK(warning < result.err.find(" ready: "));
        return result.err;
    };
    CHECK_THAT(said(2), Catch::Contains("remaining 2 steps, so no weight will change; the rate is "
                                        "above 0 from step 3 on: train more steps"));
    CHECK_THAT(said(3), !Catch::Contains("learning rate is 0"));
}

TEST_CASE("a run says whether gradients are clipped, and by whose choice") {
    const std::string given = "SGD with lr 0.01, gradients ";
    struct Row {
        Json clipping;
        std::string words;
    };
    const Row rows[] = {
        {nullptr, "not clipped (gradient_clipping is not given; DeepSpeed would clip at 1.0)\n"},
        {0, "not clipped\n"},
        {0.5, "clipped at norm 0.5\n"},
    };
    for (const Row& row : rows) {
        const TemporaryFolder folder;
        Json config = sgd(fixture_config(fixture_facts("mlp"), 1, 1), 0.01);
        if (!row.clipping.is_null()) config["gradient_clipping"] = row.clipping;
        const TrainResult result = train_well(folder, ranks(1), "mlp", config);
        CHECK_THAT(folder.read("out/logs/rank-0.log"), Catch::Contains(given + row.words));
    }
}

TEST_CASE("a model that writes attributes is not recomputed but refused by name") {
    const TemporaryFolder folder;
    Json config = fixture_config(fixture_facts("state"), 1, 2);
    config["activation_checkpointing"] = {{"number_checkpoints", 2}};
    const TrainResult result = train(folder, ranks(1), fixture_archive("state"), config);
    INFO(result.err);
    CHECK(result.code == 66);
    CHECK(result.err.find("which activation checkpointing would write twice") != std::string::npos);
}

namespace {

std::string told_by_run(const TemporaryFolder& folder, const std::string& config,
                        const std::vector<std::string>& more = {}) {
    write_file(folder.path() + "/ds.json", config);
    std::vector<std::string> command = {kDslaunch,   "--num_gpus",
                                        "2",         "--device",
                                        "cpu",       fixture_path("models/gpt.pt"),
                                        "--config",  folder.path() + "/ds.json",
                                        "--data",    fixture_path("data/kjv.u16.bin"),
                                        "--context", "32",
                                        "--output",  folder.path() + "/out"};
    command.insert(command.end(), more.begin(), more.end());
    JobProcess job(folder, command);
    const int code = job.wait();
    INFO(job.err());
    REQUIRE(code == 0);
    return job.err();
}

}  // namespace

TEST_CASE("profiles, memory, operations and equal copies of a run are told in its log") {
    const TemporaryFolder folder;
    const std::string told =
        told_by_run(folder,
                    R"({"train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 2,
            "activation_checkpointing": {"number_checkpoints": 2},
            "flops_profiler": {"enabled": true, "profile_step": 2, "top_modules": 2},
            "memory_breakdown": true, "steps_per_print": 2,
            "comms_logger": {"enabled": true, "prof_ops": []},
            "dslaunch": {"steps": 4, "check_equal_interval": 1, "peak_tflops": 0.5}})");
    INFO(told);
    // There are 2 micro steps of 2 rows. In the reference (tests/fixtures/flops/peers.json), the
    // forward of 2 rows of 32 tokens has 6,029,312 FLOPs.
    for (const char* words : {"step 3, after 2 steps", "3.015 MMACs", "6.029 MFLOP", "2 x 2",
                              "recompute latency", "blocks.*.fc", "bwd ms", "memory after forward ",
                              "no operation moved data between ranks", "mfu "})
        CHECK_THAT(told, Catch::Contains(words));
    const std::vector<Json> lines = metrics_in(folder.path() + "/out");
    for (const Json& line : lines) {
        CHECK(line.at("peak_tflops") == 0.5);
        CHECK(line.at("peak_from") == "stated");
        CHECK(line.at("mfu").get<double>() == Approx(line.at("tflops").get<double>() / 0.5));
    }
    CHECK(lines.size() == 4);
}

TEST_CASE("a profile goes to its file, a run without its step says so, and a peak is measured") {
    const TemporaryFolder folder;
    const TemporaryFolder other;
    const std::string file = folder.path() + "/profiles/gpt.txt";
    const std::string told = told_by_run(
        folder, R"({"train_micro_batch_size_per_gpu": 2, "flops_profiler": {"enabled": true,
                    "detailed": false, "output_file": ")" +
                    file + R"("}, "dslaunch": {"steps": 2}})");
    CHECK_THAT(told, Catch::Contains("profiles/gpt.txt contains the flops profile of step 2"));
    CHECK_THAT(folder.read("profiles/gpt.txt"), Catch::Contains("step 2, after 1 step"));
    CHECK_THAT(told_by_run(other, R"({"train_micro_batch_size_per_gpu": 2, "flops_profiler":
                                      {"enabled": true, "profile_step": 7}})",
                           {"--steps", "2"}),
               Catch::Contains("set flops_profiler.profile_step to a number from 0 to 1"));
    const std::vector<Json> lines = metrics_in(other.path() + "/out");
    REQUIRE_FALSE(lines.empty());
    const Json& line = lines.front();
    CHECK(line.at("peak_from") == "measured");
    CHECK(line.at("peak_tflops").get<double>() > 0);
    CHECK(line.at("mfu").get<double>() > 0);
}

}  // namespace dslaunch::test
