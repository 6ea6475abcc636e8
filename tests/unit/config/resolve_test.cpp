#include <fmt/core.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "config/schema/schema.h"
#include "resolved.h"
#include "support/catch.h"

using namespace dslaunch;
using namespace dslaunch::config;
using namespace dslaunch::test;

namespace {

std::vector<std::string> good_configs() {
    return {
        "{}",
        R"({"train_batch_size": 8, "steps_per_print": 2000,
            "optimizer": {"type": "Adam",
                          "params": {"lr": 0.001, "betas": [0.8, 0.999], "eps": 1e-8,
                          "weight_decay": 3e-7}},
            "scheduler": {"type": "WarmupLR", "params": {"warmup_min_lr": 0, "warmup_max_lr": 0.001,
                          "warmup_num_steps": 1000}},
            "gradient_clipping": 1.0, "prescale_gradients": false,
            "bf16": {"enabled": false},
            "fp16": {"enabled": false, "fp16_master_weights_and_grads": false, "loss_scale": 0,
                     "loss_scale_window": 500, "hysteresis": 2, "min_loss_scale": 1,
     "initial_scale_power": 15},
            "wall_clock_breakdown": false,
            "zero_optimization": {"stage": 0, "allgather_partitions": true, "reduce_scatter": true,
                "allgather_bucket_size": 50000000, "reduce_bucket_size": 5e7, "overlap_comm": true,
                "contiguous_gradients": true, "cpu_offload": null,
                "offload_param": {"device": "none"}}})",
        R"({"train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto",
            "train_batch_size": "auto", "gradient_clipping": "auto", "fp16": {"enabled": "auto"},
            "optimizer": {"type": "AdamW", "params": {"lr": "auto", "betas": "auto", "eps": "auto",
                          "weight_decay": "auto"}},
            "scheduler": {"type": "WarmupDecayLR", "params": {"total_num_steps": "auto",
   "warmup_min_lr": "auto",
                          "warmup_max_lr": "auto", "warmup_num_steps": "auto"}},
            "dslaunch": {"steps": 50}})",
        R"({"optimizer": {"type": "sgd", "params": {"lr": 0.1, "momentum": 0.9, "nesterov": true}},
            "scheduler": {"type": "WarmupCosineLR", "params": {"total_num_steps": 100}},
            "activation_checkpointing": {"number_checkpoints": 4},
            "dslaunch": {"data": {"train": "a \"b\" \\ é.npy", "columns": {"x": "pixels"},
    "context": 64,
                         "dtype": "uint32", "shuffle": false, "eval_fraction": 0.1},
                         "steps": 5, "seed": 7, "device": "cpu", "eval_interval": 2,
      "broadcast_buffers": true, "tf32": true,
                         "loss": {"name": "cross_entropy", "target": "y", "mean": "token"},
                         "save": {"interval": 3, "keep": 2},
                         "communication": {"reduce": "micro_step"}}})",
        R"({"fp16": {"enabled": true, "initial_scale_power": 9, "min_loss_scale": 2},
            "zero_optimization": {"stage": 3, "prefetch_bucket_size": "auto",
                "param_persistence_threshold": 12, "allgather_bucket_size": 7e6},
            "dslaunch": {"shard": "layer"}})",
        R"({"bf16": {"enabled": true, "check_grad_overflow": false},
            "zero_optimization": {"stage": 1}, "communication_data_type": "fp32"})",
        R"({"zero_optimization": {"stage": 3, "sub_group_size": 5e5,
                "cpu_offload_use_pin_memory": false,
                "offload_optimizer": {"device": "nvme", "nvme_path": ["/a", "/b"], "ratio": 0.5},
                "offload_param": {"device": "nvme", "nvme_path": ["/b", "/a"], "buffer_size": 7e6,
                                  "buffer_count": "auto", "max_in_cpu": 1e4}},
            "aio": {"block_size": 65536, "thread_count": 3},
            "dslaunch": {"offload": {"chunk_numel": 4096, "engine": "threads"}}})",
        R"({"zero_optimization": {"stage": 2, "cpu_offload": true}})",
        "train_batch_size: 4   # YAML by the same keys\noptimizer:\n  type: Adam\n  params: "
        "{adam_w_mode: false}\n",
    };
}

}  // namespace

TEST_CASE("a printed config resolves to an equal one, at several world sizes") {
    for (const std::string& text : good_configs()) {
        for (int64_t world_size : {1, 2, 4}) {
            CAPTURE(text, world_size);
            Resolved first = resolved(text, world_size);
            Resolved second = resolved(config_text(first), world_size);
            CHECK(first.config == second.config);
        }
    }
}

TEST_CASE("a printed config of ranks that share layers or positions resolves to an equal one") {
    for (const std::string text :
         {R"({"dslaunch": {"tensor": {"size": 2, "rules": {"*.mlp.*": "replicated", "h.0.w": "row"},
                                      "share_positions": true, "check": false}}})",
          R"({"dslaunch": {"sequence": {"size": 2, "check": false}}})"}) {
        CAPTURE(text);
        const Resolved first = resolved(text, 4);
        CHECK(first.config == resolved(config_text(first), 4).config);
        CHECK(first.config.ranks_of_copy() == 2);
    }
    const std::vector<std::pair<std::string, std::string>> rules = {{"*.mlp.*", "replicated"},
                                                                    {"h.0.w", "row"}};
    CHECK(resolved(R"({"dslaunch": {"tensor": {"size": 2, "rules": {"*.mlp.*": "replicated",
                       "h.0.w": "row"}}}})",
                   4)
              .config.tensor.rules == rules);
}

TEST_CASE("the batch relation is solved from what is given") {
    struct Row {
        const char* text;
        int64_t world_size;
        BatchConfig batch;
    };
    const std::vector<Row> rows = {
        {"{}", 3, {3, 1, 1, 3}},
        {"{train_batch_size: 32}", 4, {32, 8, 1, 4}},
        {"{train_micro_batch_size_per_gpu: 4}", 2, {8, 4, 1, 2}},
        {"{gradient_accumulation_steps: 4}", 2, {8, 1, 4, 2}},
        {"{train_batch_size: 32, train_micro_batch_size_per_gpu: 4}", 1, {32, 4, 8, 1}},
        {"{train_batch_size: 32, gradient_accumulation_steps: 2}", 4, {32, 4, 2, 4}},
        {"{train_micro_batch_size_per_gpu: 3, gradient_accumulation_steps: 5}", 7, {105, 3, 5, 7}},
        // Ranks that share a batch divide its rows among themselves.
        {"{dslaunch: {tensor: {size: 2}, pipeline: {stages: 3}}}", 12, {2, 1, 1, 2}},
        {"{train_batch_size: 32, tensor_parallel: {autotp_size: 4}}", 8, {32, 16, 1, 2}},
        {"{train_batch_size: 32, sequence_parallel_size: 2}", 4, {32, 16, 1, 2}},
    };
    for (const Row& row : rows) {
        CAPTURE(row.text);
        CHECK(resolved(row.text, row.world_size).config.batch == row.batch);
    }
}

TEST_CASE("every value says where it comes from") {
    TrainConfig config =
        parse_config("{\"train_batch_size\": 32,\n \"gradient_clipping\": \"auto\"}", "ds.json");
    apply_override(config, "optimizer={type: AdamW, params: {lr: 2e-4}}");
    apply_override(config, "dslaunch.steps=10", "--steps");
    apply_text(config, "dslaunch.data.train", "3", "--data");
    ResolveOptions options;
    options.world_size = 2;
    Resolved result = resolve(config, options);
    REQUIRE(result.problems.empty());
    CHECK(value_at(result, "train_batch_size").origin == "ds.json:1:22");
    CHECK(value_at(result, "train_micro_batch_size_per_gpu").origin ==
          "derived: 32 rows / 1 micro steps / 2 ranks");
    CHECK(value_at(result, "gradient_clipping").origin ==
          "derived: auto = 1.0, the value in DeepSpeed's documentation");
    CHECK(value_at(result, "optimizer.params.lr").origin == "--set");
    CHECK(value_at(result, "dslaunch.steps").origin == "--steps");
    CHECK(value_at(result, "dslaunch.seed").origin == "default");
    CHECK(result.config.optimizer.lr == 2e-4);
    CHECK(result.config.data.train_path == "3");
}

TEST_CASE("gradients are clipped only where that is said, and the origin says so") {
    struct Row {
        std::string text;
        double clipping;
        std::string origin;
    };
    const Row rows[] = {
        {"{train_batch_size: 32}", 0.0,
         "derived: off when not given; DeepSpeed 0.19 would clip at 1.0"},
        {"{gradient_clipping: 0}", 0.0, "c:1:21"},
        {"{gradient_clipping: 0.5}", 0.5, "c:1:21"},
    };
    for (const Row& row : rows) {
        CAPTURE(row.text);
        const Resolved result = resolved(row.text, 1);
        CHECK(result.config.gradient_clipping == row.clipping);
        CHECK(value_at(result, "gradient_clipping").origin == row.origin);
    }
}

TEST_CASE("an interval of evaluations without held-out data is warned of") {
    const auto warnings = [](const std::string& data) {
        return resolved("{dslaunch: {steps: 4, eval_interval: 2, data: {train: a" + data + "}}}", 1)
            .warnings;
    };
    REQUIRE(warnings("").size() == 1);
    CHECK_THAT(warnings("").front(), Catch::Contains("dslaunch.eval_interval") &&
                                         Catch::Contains("has no effect") &&
                                         Catch::Contains("eval_fraction"));
    CHECK(warnings(", eval: b").empty());
    CHECK(warnings(", eval_fraction: 0.1").empty());
}

TEST_CASE("a config absent altogether gives the defaults of RunConfig") {
    Resolved result = resolve(empty_config());
    CHECK(result.problems.empty());
    CHECK(result.config == RunConfig{});
}

TEST_CASE("a run takes one pass over the data where neither steps nor epochs are named") {
    ResolveOptions options{.world_size = 2};
    const Resolved before = resolve(parse_config("{train_batch_size: 8}", "c"), options);
    CHECK(before.problems.empty());
    CHECK(before.config.steps == 0);
    CHECK_THAT(before.chosen, Catch::Contains("one pass over the data (--epochs, --steps)"));
    options.samples = 41;
    const Resolved after = resolve(parse_config("{train_batch_size: 8}", "c"), options);
    CHECK(after.config.steps == 6);  // 41 / 8 = 5.1
    CHECK(after.config.epochs == 0);
    CHECK(value_at(after, "dslaunch.steps").origin ==
          "derived: 1 epoch x 41 samples / 8 rows per step");
    const Resolved named =
        resolve(parse_config("{train_batch_size: 8, dslaunch: {epochs: 1}}", "c"), options);
    CHECK(named.config.steps == after.config.steps);
    CHECK(named.chosen.empty());
}

TEST_CASE("epochs are steps once the samples are known, and total_num_steps is the run's steps") {
    const std::string text =
        "{train_batch_size: 8, scheduler: {type: WarmupDecayLR, params: {total_num_steps: auto}}, "
        "dslaunch: {epochs: 2.5}}";
    ResolveOptions options{.world_size = 2};
    const Resolved before = resolve(parse_config(text, "c"), options);
    CHECK(before.problems.empty());
    CHECK(before.config.steps == 0);
    options.samples = 101;  // 2.5 * 101 / 8 = 31.6
    const Resolved after = resolve(parse_config(text, "c"), options);
    CHECK(after.problems.empty());
    CHECK(after.config.steps == 32);
    CHECK(after.config.scheduler.total_num_steps == 32);
    options.samples = 1;
    CHECK(resolve(parse_config(text, "c"), options).config.steps == 1);
    const Resolved both = resolve(parse_config("{dslaunch: {epochs: 1, steps: 3}}", "c"), options);
    REQUIRE(both.problems.size() == 1);
    CHECK(both.problems[0].text() ==
          "c:1:21: dslaunch.epochs: cannot be used together with dslaunch.steps (c:1:31): remove "
          "one of the two; --set dslaunch.steps=null ignores the steps");
}

// If the command line says nothing, the values are the defaults of transformers.TrainingArguments.
TEST_CASE("auto is what Hugging Face's Trainer would fill in, and each is said") {
    const std::string text =
        R"({"train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto",
            "gradient_accumulation_steps": "auto", "gradient_clipping": "auto",
            "bf16": {"enabled": "auto"}, "fp16": {"enabled": "auto"},
            "optimizer": {"type": "AdamW", "params": {"lr": "auto", "betas": "auto",
                          "eps": "auto", "weight_decay": "auto", "torch_adam": true}},
            "scheduler": {"type": "WarmupLR", "params": {"warmup_min_lr": "auto",
                          "warmup_max_lr": "auto", "warmup_num_steps": "auto"}},
            "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "auto"}}})";
    const Resolved result = resolved(text, 2);
    CHECK(result.config.batch.micro_rows == 8);
    CHECK(result.config.batch.train_rows == 16);
    CHECK(result.config.gradient_clipping == 1.0);
    CHECK(result.config.optimizer.lr == 5e-5);
    CHECK(result.config.optimizer.weight_decay == 0.0);
    CHECK(result.config.scheduler.warmup_num_steps == 0);
    CHECK(result.config.scheduler.warmup_max_lr == 5e-5);
    CHECK(result.config.precision.compute == DType::kF32);
    CHECK(result.config.offload.optimizer == OffloadDevice::kNone);
    REQUIRE(result.notes.size() == 1);
    CHECK_THAT(result.notes[0], Catch::StartsWith("c: `auto` means the default of Hugging Face's "
                                                  "Trainer: train_micro_batch_size_per_gpu 8, ") &&
                                    Catch::Contains("optimizer.params.lr 5e-05, ") &&
                                    Catch::Contains("scheduler.params.warmup_num_steps 0, ") &&
                                    Catch::Contains("bf16.enabled false") &&
                                    Catch::Contains("--warmup-steps"));
    // A value about which the user says something is left out of the note.
    TrainConfig config = parse_config(text, "c");
    apply_override(config, "optimizer.params.lr=0.25");
    const Resolved told = resolve(config, {.world_size = 2});
    CHECK(told.config.optimizer.lr == 0.25);
    CHECK(told.config.scheduler.warmup_max_lr == 0.25);
    CHECK_THAT(told.notes[0], !Catch::Contains("optimizer.params.lr "));
}

TEST_CASE("auto of bf16 and fp16 is the type of the model's weights") {
    const auto compute = [](const std::string& text, DType weights) {
        const Resolved result = resolve(parse_config(text, "c"), {.model_dtype = weights});
        CHECK(result.problems.empty());
        return result.config.precision.compute;
    };
    const std::string both = "{fp16: {enabled: auto}, bf16: {enabled: auto}}";
    CHECK(compute(both, DType::kBF16) == DType::kBF16);
    CHECK(compute(both, DType::kF16) == DType::kF16);
    CHECK(compute(both, DType::kF32) == DType::kF32);
    CHECK(compute("{bf16: {enabled: auto}}", DType::kF16) == DType::kF32);
    CHECK(compute("{fp16: {enabled: auto}, bf16: {enabled: true}}", DType::kF16) == DType::kBF16);
}

TEST_CASE("Adam is decoupled as in DeepSpeed unless adam_w_mode is false") {
    auto optimizer = [](const std::string& type, const std::string& params) {
        return resolved(fmt::format("{{optimizer: {{type: {}, params: {{{}}}}}}}", type, params), 1)
            .config.optimizer;
    };
    CHECK(optimizer("Adam", "").kind == OptimizerKind::kAdamW);
    CHECK(optimizer("Adam", "adam_w_mode: false").kind == OptimizerKind::kAdam);
    CHECK(optimizer("AdamW", "adam_w_mode: false").kind == OptimizerKind::kAdamW);
    CHECK(optimizer("AdamW", "").weight_decay == 0.0);
    CHECK(optimizer("AdamW", "torch_adam: true").weight_decay == 0.01);
    CHECK(optimizer("Adam", "torch_adam: true, adam_w_mode: false").weight_decay == 0.0);
}

TEST_CASE("Adagrad and Lion have their parameters and Adagrad its own defaults") {
    auto optimizer = [](const std::string& type, const std::string& params) {
        return resolved(fmt::format("{{optimizer: {{type: {}, params: {{{}}}}}}}", type, params), 1)
            .config.optimizer;
    };
    const OptimizerConfig adagrad = optimizer("Adagrad", "weight_decay: 0.5");
    CHECK(adagrad.kind == OptimizerKind::kAdagrad);
    CHECK(adagrad.lr == 1e-2);
    CHECK(adagrad.eps == 1e-10);
    CHECK(adagrad.decays_gradient());
    const OptimizerConfig told =
        optimizer("adagrad", "lr: 0.25, eps: 0.5, lr_decay: 2, initial_accumulator_value: 3");
    CHECK(told.lr == 0.25);
    CHECK(told.eps == 0.5);
    CHECK(told.lr_decay == 2);
    CHECK(told.initial_accumulator_value == 3);
    CHECK_FALSE(told.decays_gradient());
    const OptimizerConfig lion =
        optimizer("Lion", "lr: 0.5, weight_decay: 0.1, betas: [0.5, 0.75]");
    CHECK(lion.kind == OptimizerKind::kLion);
    CHECK(lion.lr == 0.5);
    CHECK(lion.beta1 == 0.5);
    CHECK(lion.beta2 == 0.75);
    CHECK(lion.weight_decay == 0.1);
    CHECK_FALSE(lion.decays_gradient());
    CHECK(optimizer("Lion", "").lr == 1e-3);
}

TEST_CASE("JSON escapes beyond the basic plane and slashes are read") {
    TrainConfig config =
        parse_config(R"({"dslaunch": {"data": {"train": "\ud83d\ude00\/\u00e9\\ud83d"}}})", "c");
    REQUIRE(config.problems.empty());
    CHECK(find_path(config.root, "dslaunch.data.train")->text ==
          "\xF0\x9F\x98\x80/\xC3\xA9\\ud83d");
}

TEST_CASE("what has no effect is said, not silent") {
    Resolved result = resolved(R"({"aio": {"thread_count": 4, "queue_depth": 8}})", 1);
    REQUIRE(result.notes.size() == 1);
    CHECK(result.notes[0] ==
          "c:1:26: aio.thread_count has no effect: used only with offload to nvme");
}

TEST_CASE("a warm-up that the run does not see the end of is warned of") {
    const auto warnings = [](int warmup, const std::string& length) {
        return resolved(fmt::format("{{scheduler: {{type: WarmupLR, params: {{warmup_num_steps: "
                                    "{}}}}}, dslaunch: {{{}}}}}",
                                    warmup, length),
                        1)
            .warnings;
    };
    CHECK(warnings(1000, "steps: 1000").empty());
    CHECK(warnings(1000, "epochs: 1").empty());  // the number of steps is not known yet
    CHECK(warnings(1001, "steps: 1000") ==
          std::vector<std::string>{
              "c:1:57: scheduler.params.warmup_num_steps is more than the run's 1000 steps: the "
              "learning rate never reaches its full value"});
}

TEST_CASE("the command line's learning rate is that of the default optimizer where none is named") {
    TrainConfig config = parse_config("{}", "c");
    apply_override(config, "optimizer.params.lr=0.25");
    const Resolved result = resolve(config, {});
    CHECK(result.problems.empty());
    CHECK(result.config.optimizer.kind == OptimizerKind::kAdamW);
    CHECK(result.config.optimizer.lr == 0.25);
    // A config that has a section for the optimizer must name its type.
    config = parse_config("{optimizer: {params: {}}}", "c");
    apply_override(config, "optimizer.params.lr=0.25");
    CHECK(resolve(config, {}).problems.size() == 1);
}

TEST_CASE("overrides that are not assignments are usage errors") {
    TrainConfig config = parse_config("{train_batch_size: 2}", "c");
    for (const char* bad : {"a", "=1", "a..b=1", "train_batch_size.x=1", "a=[1", "a=*x"}) {
        CAPTURE(bad);
        CHECK_THROWS_AS(apply_override(config, bad), Error);
    }
}

TEST_CASE("keys that change no result are notes") {
    const Resolved result = resolved(
        "{prescale_gradients: true, disable_allgather: true, activation_checkpointing: "
        "{partition_activations: true, cpu_checkpointing: true}, zero_optimization: {stage: 3}, "
        "compile: {deepcompile: true}, bf16: {enabled: true, "
        "bf16_master_weights_and_grads: true, bf16_optimizer_states: true}}",
        1);
    CHECK(result.config.precision.compute == DType::kBF16);
    CHECK(result.notes.size() == 5);
    CHECK_FALSE(result.config.precision.master_copies);
    CHECK(result.config.states == MomentFormat::kBf16);
    for (const std::string& note : result.notes) CHECK_THAT(note, Catch::Contains("has no effect"));
    CHECK(resolved("{wall_clock_breakdown: true}", 1).config.wall_clock_breakdown);
    CHECK(resolved("{bfloat16: {enabled: true}}", 1).config.precision.compute == DType::kBF16);
    CHECK(resolved("{checkpoint: {use_node_local_storage: true}}", 1).config.save.via_rank0);
}

TEST_CASE("profilers and checks are off until they are asked for, and take DeepSpeed's numbers") {
    const RunConfig off = resolved("{}", 1).config;
    CHECK(off.flops_profiler == FlopsProfilerConfig{});
    CHECK_FALSE(off.memory_breakdown);
    CHECK(off.check_equal_interval == 0);
    CHECK(off.peak_tflops == 0);
    const Resolved on = resolved(
        "{memory_breakdown: true, flops_profiler: {enabled: true, profile_step: 5, module_depth: "
        "2, top_modules: 3, detailed: false, output_file: f, recompute_fwd_factor: 1.0}, "
        "dslaunch: {check_equal_interval: 100, peak_tflops: 989.5}}",
        1);
    CHECK(on.config.flops_profiler == FlopsProfilerConfig{true, 5, 2, 3, false, "f"});
    CHECK(on.config.memory_breakdown);
    CHECK(on.config.check_equal_interval == 100);
    CHECK(on.config.peak_tflops == 989.5);
    REQUIRE(on.notes.size() == 1);
    CHECK_THAT(on.notes[0], Catch::Contains("flops_profiler.recompute_fwd_factor has no effect"));
    CHECK_FALSE(
        resolve(parse_config("{flops_profiler: {module_depth: -2}}", "c"), {}).problems.empty());
    // Hosts that compress their exchange may differ for a while.
    CHECK(resolved("{optimizer: {type: OneBitAdam, params: {lr: 0.1, freeze_step: 2}}, "
                   "dslaunch: {check_equal_interval: 100}}",
                   1)
              .notes.size() == 1);
}

TEST_CASE("old and lax forms that DeepSpeed takes are taken") {
    CHECK(resolved("{zero_optimization: true}", 1).config.zero.stage == 1);
    CHECK(resolved("{zero_optimization: false}", 1).config.zero.stage == 0);
    const Resolved zeros = resolved(
        "{zero_optimization: {stage: 3, sub_group_size: 0, allgather_bucket_size: 0, "
        "offload_param: {device: none, buffer_count: 0, buffer_size: 0}, offload_optimizer: "
        "{device: nvme, nvme_path: /a}}}",
        1);
    CHECK(zeros.config.offload.sub_group_numel == 1'000'000'000);
    for (const int stage : {0, 1, 2}) {
        const Resolved below =
            resolved(fmt::format("{{zero_optimization: {{stage: {}, offload_param: {{device: nvme, "
                                 "nvme_path: /a}}}}}}",
                                 stage),
                     1);
        CHECK_FALSE(below.config.offload.on_disk());
        REQUIRE_FALSE(below.notes.empty());
        CHECK(below.notes.front().find("has no effect at ZeRO stage") != std::string::npos);
    }
}

TEST_CASE("comments and last commas in JSON are read over, as DeepSpeed's reader does") {
    const TrainConfig config = parse_config(
        "// the whole job\n"
        "{ # of two\n"
        "  \"train_batch_size\": 8, /* rows,\n"
        "  over all ranks */ \"dslaunch\": {\"data\": {\"train\": \"http://a//b#c, }\",},},\n"
        "}\n",
        "ds.json");
    for (const Problem& problem : config.problems) UNSCOPED_INFO(problem.text());
    REQUIRE(config.problems.empty());
    CHECK(find_path(config.root, "train_batch_size")->integer == 8);
    CHECK(find_path(config.root, "train_batch_size")->origin == "ds.json:3:23");
    CHECK(find_path(config.root, "dslaunch.data.train")->text == "http://a//b#c, }");
    CHECK(find_path(config.root, "dslaunch.data.train")->origin == "ds.json:4:52");
    CHECK(parse_config("{\"a\": 1,} // end", "x.hjson").problems.empty());
}

TEST_CASE("values in sections that DeepSpeed checks by type may be spelled as strings") {
    const Resolved spelled =
        resolved(R"({"fp16": {"enabled": "True", "loss_scale_window": "500", "auto_cast": 0},
                     "zero_optimization": {"stage": "2", "overlap_comm": "no",
                                           "zero_quantized_weights": "off"}})",
                 1);
    const std::pair<const char*, const char*> rows[] = {{"fp16.enabled", "true"},
                                                        {"fp16.loss_scale_window", "500"},
                                                        {"zero_optimization.stage", "2"}};
    for (const auto& [path, value] : rows) {
        INFO(path);
        CHECK(to_json(value_at(spelled, path).value) == value);
    }
    CHECK(value_at(spelled, "fp16.enabled").origin == "c:1:22");
}

TEST_CASE("a shape of the warm-up that DeepSpeed does not know is log, with a note") {
    const Resolved config =
        resolved("{scheduler: {type: WarmupLR, params: {warmup_type: cosine}}}", 1);
    CHECK(config.config.scheduler.warmup_type == WarmupType::kLog);
    CHECK(config.notes == std::vector<std::string>{
                              "c:1:52: scheduler.params.warmup_type is `cosine`, which DeepSpeed "
                              "does not know: as in DeepSpeed, `log` is used instead"});
    CHECK(to_json(value_at(config, "scheduler.params.warmup_type").value) == "\"log\"");
}

TEST_CASE("the size of tensor parallelism may be said twice, as DeepSpeed's section has it") {
    for (const char* name : {"tp", "tensor_parallel"}) {
        const Resolved config = resolved(
            fmt::format("{{tensor_parallel: {{autotp_size: 2, {}: {{tp_size: 2}}}}}}", name), 4);
        CHECK(config.config.tensor.size == 2);
        CHECK(config.notes ==
              std::vector{fmt::format("c:1:{}: tensor_parallel.{} has no effect: "
                                      "tensor_parallel.autotp_size sets the number, and heads and "
                                      "blocks are never cut",
                                      38 + std::string_view(name).size(), name)});
    }
}

TEST_CASE("a schedule that ends at another step than the run is noted") {
    const auto notes = [](int total) {
        const Resolved made = resolved(
            fmt::format("{{scheduler: {{type: WarmupDecayLR, params: {{total_num_steps: {}}}}}, "
                        "dslaunch: {{steps: 130}}}}",
                        total),
            1);
        CHECK(made.problems.empty());
        return join(made.warnings, "\n");
    };
    CHECK_THAT(
        notes(1800),
        Catch::Contains("total_num_steps differs from the run's number of steps: the schedule ends "
                        "at step 1800, but the run at 130, so the rate does not decay fully"));
    CHECK_THAT(notes(100), Catch::Contains("the schedule ends at step 100, but the run at 130"));
    CHECK_THAT(notes(130), !Catch::Contains("the schedule ends"));
}

TEST_CASE("a printed config whose total_num_steps waits for the run's steps is read again") {
    const Resolved config =
        resolved("{scheduler: {type: WarmupDecayLR, params: {total_num_steps: auto}}}", 1);
    CHECK(resolved(config_text(config), 1).config == config.config);
}

TEST_CASE("a config file that is not there or is a folder is a clear error") {
    CHECK_THROWS_WITH(load_config("/proc/nonexistent/ds.json"),
                      "config /proc/nonexistent/ds.json: no such file");
    CHECK_THROWS_WITH(load_config("/tmp"),
                      "config /tmp: is a directory; give the file, e.g. /tmp/ds_config.json");
}

TEST_CASE("docs/config-keys.md is what the schema prints") {
    std::ifstream file(std::string(test::source_dir()) + "/docs/config-keys.md");
    std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    CHECK(text == schema_markdown());
}

TEST_CASE(
    "a config for a GPU is refused for what a run on one would refuse, an open device is not") {
    const std::pair<const char*, const char*> rows[] = {
        {R"("zero_optimization": {"stage": 3, "offload_param": {"device": "cpu"}})",
         "zero_optimization.offload_param"},
        {R"("zero_optimization": {"stage": 1, "offload_optimizer": {"device": "cpu"}})",
         "zero_optimization.offload_optimizer"},
        {R"("dslaunch": {"pipeline": {"stages": 2}})", "dslaunch.pipeline.stages"},
        {R"("dslaunch": {"tensor": {"size": 2}})", "dslaunch.tensor.size"},
        {R"("dslaunch": {"sequence": {"size": 2}})", "dslaunch.sequence.size"},
    };
    for (const auto& [text, path] : rows) {
        INFO(text);
        for (const bool cuda : {false, true}) {
            TrainConfig config = parse_config(fmt::format("{{{}}}", text), "c");
            if (cuda) apply_override(config, "dslaunch.device=cuda");
            const std::vector<Problem> problems = resolve(config).problems;
            const bool refused = std::any_of(
                problems.begin(), problems.end(),
                [&, where = std::string(path)](const Problem& problem) {
                    return problem.path == where &&
                           problem.message.find("on a GPU in this version") != std::string::npos;
                });
            CHECK(refused == cuda);
            if (!cuda) CHECK(problems.empty());
        }
    }
    for (const char* text : {R"("zero_optimization": {"stage": 3})", R"("fp16": {"enabled": true})",
                             R"("bf16": {"enabled": true})"}) {
        TrainConfig config = parse_config(fmt::format("{{{}}}", text), "c");
        apply_override(config, "dslaunch.device=cuda");
        INFO(text);
        CHECK(resolve(config).problems.empty());
    }
}

TEST_CASE("on a terminal no line of the keys or of a resolved config is wider than it") {
    const auto too_wide = [](const std::string& text, size_t width) {
        std::vector<std::string> lines;
        std::istringstream all(text);
        // A word longer than a line stays whole, such as a path or a list.
        for (std::string line; std::getline(all, line);)
            if (line.size() > width && line.find(' ', 4) < width) lines.push_back(line);
        return lines;
    };
    const Resolved result = resolved("{zero_optimization: {stage: 3}, gradient_clipping: 1}", 2);
    for (const size_t width : {80, 140}) {
        CHECK(too_wide(schema_text(width), width) == std::vector<std::string>{});
        CHECK(too_wide(resolved_table(result, width), width) == std::vector<std::string>{});
    }
    // Without a terminal, a key and its meaning are on one line, for `grep`.
    CHECK(std::ranges::count(schema_text(), '\n') == std::ssize(schema()));
    CHECK(std::ranges::count(resolved_table(result), '\n') ==
          std::ssize(result.values) + std::ssize(result.notes) + 1);  // the line of choices
}
