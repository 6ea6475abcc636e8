// Offload, from its keys to the run config.

#include <fmt/core.h>

#include <algorithm>
#include <string>
#include <vector>

#include "resolved.h"
#include "support/catch.h"

using namespace dslaunch;
using namespace dslaunch::config;
using namespace dslaunch::test;

namespace {

using Notes = std::vector<std::string>;

Resolved with_optimizer(int64_t stage, const std::string& section, const std::string& more = "") {
    return resolved(fmt::format("{{zero_optimization: {{stage: {}, offload_optimizer: {{{}}}}}{}}}",
                                stage, section, more));
}

}  // namespace

TEST_CASE("the ZeRO-Infinity config resolves as it stands") {
    const char* text = R"({"train_batch_size": 32, "train_micro_batch_size_per_gpu": 4,
      "optimizer": {"type": "Adam", "params": {"lr": 0.001}},
      "fp16": {"enabled": true, "loss_scale": 0, "loss_scale_window": 1000,
               "initial_scale_power": 32,
               "hysteresis": 2, "min_loss_scale": 1},
      "zero_optimization": {"stage": 3,
        "offload_param": {"device": "nvme", "nvme_path": "/local_nvme"},
        "offload_optimizer": {"device": "nvme", "nvme_path": "/local_nvme"},
        "stage3_max_live_parameters": 1e9, "stage3_prefetch_bucket_size": 1e7,
        "stage3_param_persistence_threshold": 1e6}})";
    const Resolved result = resolved(text);
    OffloadConfig expected;
    expected.optimizer = OffloadDevice::kNvme;
    expected.parameters = OffloadDevice::kNvme;
    expected.nvme_paths = {"/local_nvme"};
    CHECK(result.config.offload == expected);
    CHECK(result.config.offload.on_disk());
    CHECK(result.notes.empty());
    CHECK(result.config.precision.loss_scale.initial == 4294967296.0);
    CHECK(result.config.zero.live_numel_max == 1'000'000'000);
    CHECK(result.config.batch.accumulation_steps == 8);
    CHECK(result.config.optimizer.kind == OptimizerKind::kAdamW);
    CHECK(value_at(result, "zero_optimization.offload_param.max_in_cpu")
              .origin.starts_with("derived: 0: a rank's shard"));
    CHECK(value_at(result, "aio.block_size").origin ==
          "derived: what `dslaunch io-bench` stored for the disk, else the engine's default");
}

TEST_CASE("nothing is offloaded unless a device says so") {
    for (const char* section :
         {"", "device: none, nvme_path: null", "ratio: 1.0, pin_memory: true"}) {
        CAPTURE(section);
        const Resolved result = with_optimizer(0, section);
        CHECK(result.config.offload == OffloadConfig{});
        CHECK_FALSE(result.config.offload.on_disk());
        CHECK(result.notes.empty());
    }
}

TEST_CASE("super_offload offloads nothing by itself, and is said to have no effect") {
    const Resolved result = with_optimizer(0, "device: none, super_offload: true");
    CHECK(result.config.offload == OffloadConfig{});
    CHECK_FALSE(result.config.offload.on_disk());
    REQUIRE(result.notes.size() == 1);
    CHECK(result.notes[0].find("super_offload has no effect") != std::string::npos);
}

TEST_CASE("adaptive placement starts from the ratio") {
    const Resolved result = with_optimizer(2, "device: nvme, nvme_path: /d, ratio: 0.75",
                                           ", dslaunch: {offload: {placement: auto}}");
    CHECK(result.config.offload.adaptive);
    CHECK(result.config.offload.optimizer_ratio == 0.75);
    CHECK(result.notes.empty());
    CHECK_FALSE(with_optimizer(2, "device: nvme, nvme_path: /d").config.offload.adaptive);
    const Resolved in_memory =
        with_optimizer(2, "device: none", ", dslaunch: {offload: {placement: auto}}");
    CHECK_FALSE(in_memory.config.offload.adaptive);
    REQUIRE(in_memory.notes.size() == 1);
    CHECK_THAT(in_memory.notes.front(),
               Catch::Contains("dslaunch.offload.placement has no effect"));
}

TEST_CASE("every number of both tiers and of the disk is read") {
    const Resolved result = resolved(
        "{zero_optimization: {stage: 3, sub_group_size: 1e8, offload_optimizer: {device: nvme, "
        "nvme_path: [/a, /b], pin_memory: false, ratio: 0.25, buffer_count: 2}, offload_param: "
        "{device: nvme, nvme_path: [/b, /a], buffer_count: 3, buffer_size: 1e6, max_in_cpu: 7}}, "
        "aio: {block_size: 8192, queue_depth: 64, intra_op_parallelism: 4}, dslaunch: {offload: "
        "{chunk_numel: 100000, cache: lfu, engine: threads, compress: {moments: int8, lossless: "
        "zstd}}}}");
    OffloadConfig expected;
    expected.optimizer = OffloadDevice::kNvme;
    expected.parameters = OffloadDevice::kNvme;
    expected.nvme_paths = {"/a", "/b"};
    expected.chunk_numel = 100'000;
    expected.sub_group_numel = 100'000'000;
    expected.optimizer_buffer_count = 2;
    expected.optimizer_ratio = 0.25;
    expected.parameters_in_memory_numel = 7;
    expected.pin_memory = false;
    expected.aio = {8192, 64, 4};
    expected.eviction = EvictionRule::kLfu;
    expected.engine = OffloadEngine::kThreads;
    expected.moments = MomentFormat::kInt8;
    expected.lossless = true;
    CHECK(result.config.offload == expected);
    CHECK(result.notes ==
          Notes{"c:1:377: dslaunch.offload.cache lfu keeps chunks in memory only in buffers "
                "beyond the first 4, through which chunks pass; "
                "zero_optimization.offload_optimizer.buffer_count is 2, so none are kept",
                "c:1:223: zero_optimization.offload_param.buffer_count has no effect: the plan "
                "computes as many as there are gathers at once; the log says how many",
                "c:1:239: zero_optimization.offload_param.buffer_size has no effect: the plan "
                "makes each as large as the buckets that pass through it; the log says how "
                "large"});
}

TEST_CASE("nothing is compressed on its way to the disk unless it is asked for") {
    CHECK(with_optimizer(1, "device: nvme, nvme_path: /d").config.offload.moments ==
          MomentFormat::kFp32);
    const auto with = [](const std::string& section, const std::string& more) {
        return resolved("{zero_optimization: {stage: 3, " + section +
                        ": {device: nvme, nvme_path: /d}}, " + more + "}");
    };
    const Resolved bf16 =
        with("offload_optimizer", "dslaunch: {offload: {compress: {moments: bf16}}}");
    CHECK(bf16.config.offload.moments == MomentFormat::kBf16);
    CHECK_FALSE(bf16.config.offload.lossless);
    // Moments that stay in memory are fp32.
    const Resolved parameters =
        with("offload_param", "dslaunch: {offload: {compress: {moments: int8, lossless: zstd}}}");
    CHECK(parameters.config.offload.moments == MomentFormat::kFp32);
    CHECK(parameters.config.offload.lossless);
    REQUIRE(parameters.notes.size() == 1);
    CHECK_THAT(parameters.notes.front(),
               Catch::Contains("compress.moments has no effect: used only with offload_optimizer"));
}

TEST_CASE("threads are those of the thread engine") {
    for (const char* name : {"intra_op_parallelism", "thread_count"}) {
        const Resolved result = with_optimizer(
            1, "device: nvme, nvme_path: /d",
            fmt::format(", aio: {{{}: 4}}, dslaunch: {{offload: {{engine: io_uring}}}}", name));
        CHECK(result.config.offload.aio.threads == 4);
        REQUIRE(result.notes.size() == 1);
        CHECK_THAT(result.notes.front(),
                   Catch::Contains(
                       fmt::format("aio.{} has no effect: used only by the thread engine", name)));
    }
}

TEST_CASE("optimizer states go to disk from stage 1 on, parameters at stage 3") {
    for (int64_t stage : {1, 2, 3}) {
        const OffloadConfig offload =
            with_optimizer(stage, "device: nvme, nvme_path: /d").config.offload;
        CHECK(offload.optimizer == OffloadDevice::kNvme);
        CHECK(offload.parameters == OffloadDevice::kNone);
        CHECK(offload.nvme_paths == std::vector<std::string>{"/d"});
        CHECK(offload.parameters_in_memory_numel == 0);
    }
    const Resolved mixed = resolved(
        "{zero_optimization: {stage: 3, offload_optimizer: {device: cpu}, offload_param: {device: "
        "nvme, nvme_path: /d}}}");
    CHECK(mixed.config.offload.optimizer == OffloadDevice::kCpu);
    CHECK(mixed.config.offload.parameters == OffloadDevice::kNvme);
}

TEST_CASE("a folder of the disk that only a shell could read is refused") {
    for (const char* path : {"~/nvme", "$SCRATCH/x", "[/d, '~/nvme']"}) {
        const Resolved result =
            resolve(parse_config(
                        fmt::format("{{zero_optimization: {{stage: 3, offload_optimizer: {{device: "
                                    "nvme, nvme_path: {}}}}}}}",
                                    path),
                        "c"),
                    {.world_size = 1});
        INFO(path);
        REQUIRE(result.problems.size() == 1);
        CHECK_THAT(result.problems[0].text(), Catch::Contains("dslaunch does not expand `"));
    }
    const Resolved profile =
        resolve(parse_config("{flops_profiler: {output_file: ~/fl.txt}}", "c"), {.world_size = 1});
    REQUIRE(profile.problems.size() == 1);
    CHECK_THAT(profile.problems[0].text(),
               Catch::Contains("output_file: dslaunch does not expand `~`"));
}

TEST_CASE("device cpu is accepted, and what a CPU run makes of it is said") {
    const Resolved result = with_optimizer(
        1, "device: cpu, pin_memory: false, ratio: 0.5, buffer_count: 3, nvme_path: /d");
    CHECK(result.config.offload.optimizer == OffloadDevice::kCpu);
    CHECK_FALSE(result.config.offload.on_disk());
    CHECK(result.config.offload.optimizer_ratio == 1.0);
    const std::string section = "zero_optimization.offload_optimizer.";
    const std::string why = " has no effect: used only with device nvme";
    CHECK(result.notes ==
          Notes{"c:1:60: " + section +
                    "device moves nothing in a run on CPUs: everything is in CPU memory already",
                "c:1:124: " + section + "nvme_path" + why, "c:1:91: " + section + "ratio" + why,
                "c:1:110: " + section + "buffer_count" + why,
                "c:1:77: " + section + "pin_memory" + why});
}

TEST_CASE("what DeepSpeed's first versions had is taken as what came after it") {
    const Resolved on =
        resolved("{zero_optimization: {stage: 3, cpu_offload: true, cpu_offload_param: false}}");
    CHECK(on.config.offload.optimizer == OffloadDevice::kCpu);
    CHECK(on.config.offload.parameters == OffloadDevice::kNone);
    const std::string old = "zero_optimization.cpu_offload";
    CHECK(
        on.notes ==
        Notes{
            "c:1:45: " + old +
                " is deprecated, and read as zero_optimization.offload_optimizer.device: cpu",
            "c:1:45: " + old +
                " moves nothing in a run on CPUs: everything is in CPU memory already",
            "c:1:70: " + old +
                "_param is deprecated, and read as zero_optimization.offload_param.device: none"});
    const Resolved pinned = resolved(
        "{zero_optimization: {stage: 1, cpu_offload_use_pin_memory: false, offload_optimizer: "
        "{device: nvme, nvme_path: /d}}}");
    CHECK_FALSE(pinned.config.offload.pin_memory);
    CHECK(pinned.notes == Notes{"c:1:60: " + old +
                                "_use_pin_memory is deprecated, and read as "
                                "zero_optimization.offload_optimizer.pin_memory"});
}

TEST_CASE("what the plan does anyway, or nobody reads, is accepted and said") {
    const Resolved result = with_optimizer(
        1,
        "device: nvme, nvme_path: /d, pipeline_read: true, pipeline_write: true, fast_init: true, "
        "cpuadam_cores_perc: 0.5, super_offload: true",
        ", aio: {single_submit: true, overlap_events: false, use_gds: true}");
    CHECK(result.config.offload.on_disk());
    CHECK(result.notes.size() == 8);
    CHECK(std::ranges::any_of(result.notes, [](const std::string& note) {
        return note.find("super_offload has no effect: updates that need the norm wait for it") !=
               std::string::npos;
    }));
    const Resolved unread =
        resolved("{aio: {queue_depth: 9}, dslaunch: {offload: {chunk_numel: 8, engine: threads}}}");
    CHECK(unread.config.offload == OffloadConfig{});
    CHECK(unread.notes ==
          Notes{"c:1:59: dslaunch.offload.chunk_numel has no effect: used only with "
                "offload_optimizer to nvme",
                "c:1:21: aio.queue_depth has no effect: used only with offload to nvme",
                "c:1:70: dslaunch.offload.engine has no effect: used only with offload to nvme"});
}
