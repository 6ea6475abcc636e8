// Models whose forward writes parameters, constants of its code, or its arguments, through the real
// programs, compared with stock PyTorch (tests/fixtures/make_writes.py). They are trained at every
// stage and shape, resumed and verified. A model that only one process can run is refused with the
// reason.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "fixture_runs.h"
#include "storage/files/safetensors.h"

namespace dslaunch::test {

using namespace storage;
namespace {

constexpr int kRefused = 66;

Json references() {
    return Json::parse(content_of(fixture_path("writes/references.json")));
}

// Returns the config of the references: SGD, and a global batch of 4 rows in order.
Json config_of(const std::string& name, const Json& changes = Json::object()) {
    const std::string rows = name == "table" ? "writes/ids.safetensors" : "writes/rows.safetensors";
    Json config = {{"train_batch_size", 4},
                   {"optimizer", {{"type", "SGD"}, {"params", {{"lr", 0.1}}}}},
                   {"dslaunch",
                    {{"steps", 3}, {"data", {{"train", fixture_path(rows)}, {"shuffle", false}}}}}};
    if (changes.is_object()) config.merge_patch(changes);
    return config;
}

Json stage(int number) {
    return {{"zero_optimization", {{"stage", number}}}};
}

TrainResult run(const TemporaryFolder& folder, const std::vector<std::string>& where,
                const std::string& archive, const Json& config) {
    return train(folder, where, fixture_path("writes/" + archive), config);
}

// Sums of a few products are made in another order: values near 1 err by 1e-6, in three steps by
// more.
constexpr double kBound = 1e-5;

void check_losses(const std::vector<double>& losses, const Json& reference) {
    const auto expected = reference.at("losses").get<std::vector<double>>();
    REQUIRE(losses.size() == expected.size());
    for (size_t i = 0; i < losses.size(); ++i)
        CHECK(std::abs(losses[i] - expected[i]) < kBound * std::max(1.0, expected[i]));
}

void check_weights(const std::string& path, const Json& reference) {
    const SafetensorsFile file(path);
    for (const auto& [name, values] : reference.at("weights").items()) {
        INFO(name);
        const auto expected = values.get<std::vector<float>>();
        std::vector<float> found(expected.size());
        const SafetensorsEntry* const entry = file.find(name);
        REQUIRE(entry != nullptr);
        REQUIRE(entry->bytes.size() == found.size() * sizeof(float));
        std::memcpy(found.data(), entry->bytes.data(), entry->bytes.size());
        for (size_t i = 0; i < found.size(); ++i)
            CHECK(std::abs(found[i] - expected[i]) <
                  kBound * std::max(1.0F, std::abs(expected[i])));
    }
    CHECK(file.entries().size() == reference.at("weights").size());
}

struct Place {
    const char* what;
    int ranks;
    bool over_hosts;
    int stage;
};

constexpr Place kPlaces[] = {
    {"one rank", 1, false, 0},           {"two ranks", 2, false, 0},
    {"two ranks, stage 1", 2, false, 1}, {"two ranks, stage 2", 2, false, 2},
    {"two ranks, stage 3", 2, false, 3}, {"two hosts", 2, true, 0},
    {"two hosts, stage 1", 2, true, 1},  {"two hosts, stage 3", 2, true, 3},
};

std::vector<std::string> where(const TemporaryFolder& folder, const Place& place) {
    return place.over_hosts ? hosts(folder, {1, 1}) : ranks(place.ranks);
}

}  // namespace

TEST_CASE("parameters that forward writes are those of one process at every stage", "[matrix]") {
    const Json all = references();
    EveryNth nth(7);  // every 7th of 12 archives x 8 places
    for (const char* archive :
         {"target.pt2", "target.script.pt", "target.trace.pt", "listed.pt2", "listed.trace.pt",
          "normed.pt2", "normed.trace.pt", "clamped.pt2", "clamped.script.pt", "clamped.trace.pt",
          "decayed.pt2", "decayed.script.pt"})
        for (const Place& place : kPlaces) {
            if (!nth.takes_next()) continue;
            INFO(archive << ", " << place.what);
            const std::string name = std::string(archive).substr(0, std::string(archive).find('.'));
            const TemporaryFolder folder;
            const TrainResult result =
                run(folder, where(folder, place), archive, config_of(name, stage(place.stage)));
            INFO(result.err);
            REQUIRE(result.code == 0);
            check_losses(result.losses(), all.at(name));
            check_weights(folder.path() + "/out/model.safetensors", all.at(name));
        }
}

TEST_CASE("arguments and constants that forward writes are those of one process") {
    const Json all = references();
    const Json tensor = {{"dslaunch", {{"tensor", {{"size", 2}}}}}};
    const Json recompute = {{"activation_checkpointing", {{"number_checkpoints", 1}}}};
    const Json stages = {{"dslaunch", {{"pipeline", {{"stages", 2}}}}}};
    struct Row {
        const char* archive;
        int ranks;
        Json changes;
    };
    const Row rows[] = {
        {"counted.pt2", 1, {}},
        {"counted.pt2", 2, stage(3)},
        {"counted.pt2", 2, tensor},
        {"counted.script.pt", 2, {}},
        {"counted.pt2", 1, recompute},
        {"counted.trace.pt", 2, stage(3)},
        {"queued.pt2", 1, recompute},
        {"queued.script.pt", 2, stages},
        {"queued.trace.pt", 1, recompute},
        {"queued.trace.pt", 2, stages},
        {"queued.trace.pt", 2, tensor},
        {"overwriting.pt2", 1, {}},
        {"overwriting.pt2", 2, tensor},
        {"overwriting.script.pt", 2, tensor},
        {"overwriting.trace.pt", 1, recompute},
        {"target.pt2", 1, recompute},
        {"clamped.pt2", 2, tensor},
    };
    for (const Row& row : rows) {
        INFO(row.archive << ", " << row.ranks << " ranks, " << row.changes.dump());
        const std::string name =
            std::string(row.archive).substr(0, std::string(row.archive).find('.'));
        const TemporaryFolder folder;
        const TrainResult result =
            run(folder, ranks(row.ranks), row.archive, config_of(name, row.changes));
        INFO(result.err);
        REQUIRE(result.code == 0);
        check_losses(result.losses(), all.at(name));
        check_weights(folder.path() + "/out/model.safetensors", all.at(name));
    }
}

TEST_CASE("the rows of a table that a batch shortens are those of one process on one rank") {
    const Json all = references();
    for (const char* archive : {"table.pt2", "table.script.pt", "table.trace.pt"}) {
        INFO(archive);
        const TemporaryFolder folder;
        const TrainResult result = run(folder, ranks(1), archive, config_of("table"));
        INFO(result.err);
        REQUIRE(result.code == 0);
        check_losses(result.losses(), all.at("table"));
        check_weights(folder.path() + "/out/model.safetensors", all.at("table"));
    }
}

TEST_CASE("what ranks or micro steps would write differently is refused before the first step") {
    const Json micro_steps = {{"gradient_accumulation_steps", 2}};
    const Json recompute = {{"activation_checkpointing", {{"number_checkpoints", 1}}}};
    const Json half = {{"bf16", {{"enabled", true}}}};
    struct Row {
        const char* archive;
        int ranks;
        Json changes;
        std::vector<const char*> says;
    };
    const Row rows[] = {
        {"table.pt2",
         2,
         {},
         {"`table.weight`", "with values that it computes from the batch", "one rank"}},
        {"table.pt2", 2, stage(3), {"`table.weight`", "train on one rank"}},
        {"table.pt2", 1, recompute, {"`table.weight`", "number_checkpoints to 0"}},
        {"table.pt2", 1, half, {"`table.weight`", "train in fp32"}},
        {"decayed.pt2", 1, micro_steps, {"`w`", "gradient_accumulation_steps", "weight_decay"}},
    };
    for (const Row& row : rows) {
        INFO(row.archive << ", " << row.ranks << " ranks, " << row.changes.dump());
        const std::string name =
            std::string(row.archive).substr(0, std::string(row.archive).find('.'));
        const TemporaryFolder folder;
        const TrainResult result =
            run(folder, ranks(row.ranks), row.archive, config_of(name, row.changes));
        INFO(result.err);
        CHECK(result.code == kRefused);
        for (const char* words : row.says) CHECK(result.err.find(words) != std::string::npos);
        CHECK(result.losses().empty());
    }
}

TEST_CASE("a weight that forward norms or clamps may be written in each of several micro steps") {
    // Each micro step reads the same values as a step with one micro step, and the mean of the
    // micro steps' gradients is the gradient of that step.
    const Json all = references();
    for (const char* name : {"normed", "clamped"}) {
        INFO(name);
        const TemporaryFolder folder;
        const TrainResult result = run(folder, ranks(2), std::string(name) + ".pt2",
                                       config_of(name, {{"gradient_accumulation_steps", 2},
                                                        {"zero_optimization", {{"stage", 2}}}}));
        INFO(result.err);
        REQUIRE(result.code == 0);
        check_losses(result.losses(), all.at(name));
        check_weights(folder.path() + "/out/model.safetensors", all.at(name));
    }
}

TEST_CASE("master copies take what forward writes, and a job that stops goes on from it") {
    const Json all = references();
    for (const std::string name : {"normed", "decayed"}) {
        INFO(name);
        const TemporaryFolder folder;
        const TrainResult whole =
            run(folder, ranks(2), name + ".pt2",
                config_of(name, {{"bf16", {{"enabled", true}}},
                                 {"zero_optimization", {{"stage", 2}}},
                                 {"dslaunch", {{"save", {{"interval", 2}}}}}}));
        INFO(whole.err);
        REQUIRE(whole.code == 0);
        // bf16 has 8 bits: products near 1 err by 0.4 %.
        const auto expected = all.at(name).at("losses").get<std::vector<double>>();
        for (size_t i = 0; i < expected.size(); ++i)
            CHECK(std::abs(whole.losses()[i] - expected[i]) < 0.02 * std::max(1.0, expected[i]));
    }

    Json config = config_of("target", {{"dslaunch", {{"save", {{"interval", 2}}}, {"steps", 2}}}});
    const TemporaryFolder other;
    REQUIRE(run(other, ranks(2), "target.pt2", config).code == 0);
    config["dslaunch"]["steps"] = 3;
    std::vector<std::string> again = ranks(1);
    again.emplace_back("--resume");
    const TrainResult resumed = run(other, again, "target.pt2", config);
    INFO(resumed.err);
    REQUIRE(resumed.code == 0);
    check_losses(resumed.losses(), all.at("target"));
    check_weights(other.path() + "/out/model.safetensors", all.at("target"));
}

TEST_CASE("verify agrees with what forward writes") {
    for (const char* archive : {"target.pt2", "normed.pt2", "clamped.script.pt", "counted.pt2"}) {
        INFO(archive);
        const std::string name = std::string(archive).substr(0, std::string(archive).find('.'));
        const TemporaryFolder folder;
        const std::string path = folder.path() + "/config.json";
        write_file(path, config_of(name, stage(3)).dump());
        JobProcess process(
            folder, {kDslaunch, "verify", "--num_gpus", "2", "--device", "cpu", "--config", path,
                     fixture_path("writes/" + std::string(archive))});
        CHECK(process.wait() == 0);
        INFO(process.err());
        CHECK(process.out().find("steps of 2 ranks match what one rank alone computes") !=
              std::string::npos);
    }
}

}  // namespace dslaunch::test
