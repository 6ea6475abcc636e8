// Training with states and parameters on disk, through the real programs. It has the weights of
// training in memory, needs less memory, leaves no files, and writes a trace.
#include <numeric>

#include "base/bytes.h"
#include "fixture_runs.h"

namespace dslaunch::test {
namespace {

Json config_of(const std::string& nvme_path, const Json& precision) {
    Json zero = {{"stage", 3}, {"stage3_prefetch_bucket_size", 0}, {"reduce_bucket_size", 200000}};
    if (!nvme_path.empty()) {
        zero["offload_optimizer"] = {{"device", "nvme"}, {"nvme_path", nvme_path}};
        zero["offload_param"] = {{"device", "nvme"}, {"nvme_path", nvme_path}};
    }
    Json config = precision;
    config["train_micro_batch_size_per_gpu"] = 1;
    config["gradient_clipping"] = 1.0;
    config["gradient_accumulation_steps"] = 2;
    config["optimizer"] = {{"type", "AdamW"}, {"params", {{"lr", 1e-3}}}};
    config["zero_optimization"] = std::move(zero);
    config["dslaunch"] = {{"steps", 4},
                          {"trace_step", 3},
                          {"data", {{"train", fixture_path("data/kjv.u16.bin")}, {"context", 32}}}};
    return config;
}

// Returns a lower limit for the number of the 2.4 million weights that a rank owns: an equal part,
// less 64 blocks of 16 Ki elements, since shards are cut at blocks. Biases are not counted.
int64_t own_numel_min(int ranks) {
    return 3 * 12 * 256 * 256 / ranks - 64 * 16 * 1024;
}

struct Trained {
    std::string weights;  // the bytes of model.safetensors
    std::vector<Json> metrics;
    Json trace;
    std::string log;
};

// Trains MODEL. SLOTS has one number for each host; several hosts communicate through Gloo.
Trained train(const std::string& model, const std::vector<int>& slots, const Json& config) {
    const TemporaryFolder folder;
    write_file(folder.path() + "/config.json", config.dump());
    std::vector<std::string> command = {kDslaunch};
    for (const std::string& word : slots.size() == 1 ? ranks(slots[0]) : hosts(folder, slots))
        command.push_back(word);
    command.insert(command.end(),
                   {"--device", "cpu", model, "--config", folder.path() + "/config.json",
                    "--output", folder.path() + "/out"});
    JobProcess process(folder, command);
    const int code = process.wait();
    INFO(process.err());
    REQUIRE(code == 0);
    Trained trained;
    trained.weights = folder.read("out/model.safetensors");
    trained.metrics = metrics_in(folder.path() + "/out");
    trained.trace = Json::parse(folder.read("out/trace.json"));
    trained.log = process.err();
    return trained;
}

void check_disk_alike(const Json& precision, const std::vector<int>& slots) {
    const TemporaryFolder folder;
    const std::string model = make_gpt(folder, 256, 3, 32);
    const std::string nvme = folder.path() + "/nvme";
    std::filesystem::create_directory(nvme);
    const int ranks = std::accumulate(slots.begin(), slots.end(), 0);
    INFO(precision.dump() << " on " << ranks << " ranks of " << slots.size() << " hosts");
    const Trained in_memory = train(model, slots, config_of("", precision));
    const Trained on_disk = train(model, slots, config_of(nvme, precision));
    REQUIRE(on_disk.metrics.size() == in_memory.metrics.size());
    for (size_t step = 0; step < in_memory.metrics.size(); ++step)
        CHECK(on_disk.metrics[step].at("loss") == in_memory.metrics[step].at("loss"));
    CHECK(on_disk.weights == in_memory.weights);
    const Json& last = on_disk.metrics.back();
    CHECK(last.at("memory").at("moments") == 0);
    CHECK(last.at("memory").at("parameters") == 0);
    // The remaining gradients are in the buckets' buffers, which both runs have.
    const auto gradients = [&](const Trained& trained) {
        return trained.metrics.back().at("memory").at("gradients").get<int64_t>();
    };
    CHECK(gradients(in_memory) - gradients(on_disk) >= 4 * own_numel_min(ranks));
    CHECK(last.at("disk_bytes").at("written").get<int64_t>() > 0);
    CHECK_FALSE(in_memory.metrics.back().contains("disk_bytes"));
    // The job has removed the files that it kept on disk.
    CHECK(std::filesystem::is_empty(nvme));
}

const Json kFp32 = Json::object();
const Json kBf16 = {{"bf16", {{"enabled", true}}}};

}  // namespace

TEST_CASE("a job with its states and parameters on disk has the losses and weights of memory") {
    check_disk_alike(kFp32, {2, 1});
    check_disk_alike(kBf16, {1});
}

TEST_CASE("jobs in both precisions on disk have the losses and weights of memory", "[.long]") {
    for (const Json& precision : {kFp32, kBf16})
        for (const std::vector<int>& slots : {std::vector<int>{1}, {3}, {2, 1}})
            check_disk_alike(precision, slots);
}

TEST_CASE("a job whose placement adapts has the weights of memory, and says what it chose") {
    const TemporaryFolder folder;
    const std::string model = make_gpt(folder, 256, 3, 32);
    for (const std::vector<int>& slots : {std::vector<int>{2}, {2, 1}}) {
        INFO(slots.size() << " hosts");
        const auto config = [&](const std::string& nvme_path) {
            Json made = config_of(nvme_path, Json::object());
            made["dslaunch"]["steps"] = 12;
            made["dslaunch"]["shard"] = "auto";
            return made;
        };
        Json adaptive = config(folder.path());
        adaptive["zero_optimization"]["offload_optimizer"]["ratio"] = 0.75;
        adaptive["dslaunch"]["offload"] = {{"placement", "auto"}, {"chunk_numel", 65536}};
        const Trained in_memory = train(model, slots, config(""));
        const Trained adapted = train(model, slots, adaptive);
        REQUIRE(adapted.metrics.size() == 12);
        for (size_t step = 0; step < in_memory.metrics.size(); ++step)
            CHECK(adapted.metrics[step].at("loss") == in_memory.metrics[step].at("loss"));
        CHECK(adapted.weights == in_memory.weights);
        // About a quarter of the chunks is kept in memory at the start. The limits are wide because
        // the chunks differ in length.
        const auto kept = adapted.metrics.front().at("memory").at("moments").get<int64_t>();
        const int64_t all = in_memory.metrics.front().at("memory").at("moments").get<int64_t>();
        CHECK(kept > all / 8);
        CHECK(kept < all / 2);
        CAPTURE(adapted.log);
        CHECK_THAT(adapted.log, Catch::Contains("placement: after step 4: "));
        CHECK_THAT(adapted.log, Catch::Contains("chunks in memory at the end; a step takes "));
        // If two hosts have different numbers of ranks, the host with more ranks moves fewer bytes
        // with shards of rows.
        CHECK_THAT(adapted.log, Catch::Contains(slots.size() == 1 ? "dslaunch.shard auto: flat"
                                                                  : "dslaunch.shard auto: row"));
    }
}

TEST_CASE("the trace of a step shows its transfers beside its computing") {
    const TemporaryFolder folder;
    const std::string model = make_gpt(folder, 256, 3, 32);
    Json config = config_of(folder.path(), Json::object());
    config["zero_optimization"]["sub_group_size"] = 10000;
    const Trained trained = train(model, {1}, config);
    std::map<std::string, int> events;
    std::map<int, int> instructions;
    double end_us = 0;
    for (const Json& event : trained.trace.at("traceEvents")) {
        if (event.at("ph") != "X") continue;
        ++instructions[event.at("pid").get<int>()];
        if (event.at("pid") != 0) continue;
        ++events[event.at("cat").get<std::string>()];
        end_us = std::max(end_us, event.at("ts").get<double>() + event.at("dur").get<double>());
        CHECK(event.at("dur").get<double>() >= 0);
    }
    // The two groups are the step as it ran and the step as it was predicted.
    CHECK(instructions.size() == 2);
    CHECK(instructions[0] == instructions[1]);
    for (const char* op : {"Forward", "Backward", "Read", "Write", "Update"}) {
        INFO(op);
        CHECK(events[op] > 0);
    }
    // No chunk is longer than sub_group_size. Each chunk takes part in two Accumulates and one
    // Update.
    CHECK(events["Update"] > 3 * 12 * 256 * 256 / 10000);
    CHECK(events["Accumulate"] == 2 * events["Update"]);
    const double step_ms = trained.metrics.at(2).at("step_ms").get<double>();
    CHECK(end_us > 0);
    CHECK(end_us < step_ms * 1e3);
}

}  // namespace dslaunch::test
