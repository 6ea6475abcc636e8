// Whole jobs in pipelines have the losses and weights of one rank, bit for bit, with every schedule
// and ZeRO stage, on several hosts, and with checkpoints and evaluation.
#include <cstdlib>
#include <filesystem>
#include <regex>

#include "fixture_runs.h"

namespace dslaunch::test {
namespace {

// Sums within an operator depend on the number of its threads.
const int kOneThread = ::setenv("OMP_NUM_THREADS", "1", 1);

struct Pipeline {
    int stages = 2;
    int data = 1;  // ranks of a stage
    std::string schedule = "1f1b";
    int zero = 0;
    int chunks = 0;  // 0: the schedule's own number
};

// Returns a config with four micro batches a step. Clipping makes every step depend on the norm of
// all gradients. Gradients are summed over ranks after each micro batch, as they are from ZeRO
// stage 2 on.
Json config_of(const std::string& name, int steps) {
    Json config = fixture_config(fixture_facts(name), 4, steps);
    config["gradient_clipping"] = 1.0;
    config["dslaunch"]["communication"]["reduce"] = "micro_step";
    return config;
}

Json in_pipeline(Json config, const Pipeline& pipeline) {
    config["dslaunch"]["pipeline"] = {{"stages", pipeline.stages}, {"schedule", pipeline.schedule}};
    if (pipeline.chunks > 0) config["dslaunch"]["pipeline"]["chunks"] = pipeline.chunks;
    config["zero_optimization"] = {{"stage", pipeline.zero}};
    return config;
}

std::string weights_of(const TemporaryFolder& folder) {
    return content_of(folder.path() + "/out/model.safetensors");
}

// The result of the same job without a pipeline.
struct Alone {
    TrainResult result;
    std::string weights;

    Alone(const std::string& name, const Json& config, int data) {
        const TemporaryFolder folder;
        result = train_well(folder, ranks(data), name, config);
        weights = weights_of(folder);
        REQUIRE(!weights.empty());
    }

    void check(const TemporaryFolder& folder, const TrainResult& other) const {
        CHECK(other.losses() == result.losses());
        CHECK(other.values_of("grad_norm") == result.values_of("grad_norm"));
        CHECK(other.values_of("eval_loss") == result.values_of("eval_loss"));
        CHECK((weights_of(folder) == weights));
    }
};

void check_alike(const std::string& name, const Json& config, const Alone& alone,
                 const Pipeline& pipeline) {
    INFO(name << ": " << pipeline.stages << " stages of " << pipeline.data << " ranks, "
              << pipeline.schedule << " of " << pipeline.chunks << " chunks, ZeRO "
              << pipeline.zero);
    const TemporaryFolder folder;
    const auto trained = train_well(folder, ranks(pipeline.stages * pipeline.data), name,
                                    in_pipeline(config, pipeline));
    alone.check(folder, trained);
}

// Returns the number of recompute groups in the first micro step: sequences of Recompute that are
// each followed by a Backward.
int recompute_groups(const Json& instructions) {
    int groups = 0;
    std::string before;
    for (const Json& instruction : instructions) {
        const auto op = instruction.at("op").get<std::string>();
        if (instruction.value("micro_step", -1) != 0) continue;
        if (op != "Recompute" && op != "Backward") continue;
        groups += op == "Backward" && before == "Recompute";
        before = op;
    }
    return groups;
}

}  // namespace

TEST_CASE("pipelines of processes train bit for bit as one rank does") {
    for (const std::string name : {"gpt", "gpt-dropout", "llama"}) {
        const Json config = config_of(name, 3);
        const Alone alone(name, config, 1);
        check_alike(name, config, alone, {3, 1, "1f1b", 1});
        if (name != "gpt") continue;  // the [.long] matrix has every schedule
        check_alike(name, config, alone, {2, 1, "zb-h1", 3});
    }
    const Json config = config_of("gpt", 3);
    const Alone pair("gpt", config, 2);
    check_alike("gpt", config, pair, {2, 2, "1f1b", 2});
    // The weights contain running averages; each one is updated by the stage that has its layer.
    const Alone averages("convnet", config_of("convnet", 3), 1);
    check_alike("convnet", config_of("convnet", 3), averages, {2, 1, "1f1b", 0});
}

TEST_CASE("stages of processes with several parts train bit for bit as one rank does") {
    for (const std::string name : {"gpt", "gpt-dropout", "llama"}) {
        Json config = config_of(name, 3);
        config["dslaunch"]["eval_interval"] = 2;
        config["dslaunch"]["data"]["eval_fraction"] = 0.1;
        const Alone alone(name, config, 1);
        REQUIRE(alone.result.values_of("eval_loss").size() == 3);
        check_alike(name, config, alone, {2, 1, "zb-v", 1});
        if (name != "gpt") continue;  // the [.long] matrix has more shapes
        check_alike(name, config, alone, {3, 1, "interleaved", 3, 2});
        check_alike(name, config, alone, {2, 1, "interleaved", 2, 3});
    }
    const Alone averages("convnet", config_of("convnet", 3), 1);
    check_alike("convnet", config_of("convnet", 3), averages, {2, 1, "interleaved", 0});
}

TEST_CASE("stages of processes with several parts evaluate alike in more shapes", "[.long]") {
    Json config = config_of("gpt", 3);
    config["dslaunch"]["eval_interval"] = 2;
    config["dslaunch"]["data"]["eval_fraction"] = 0.1;
    const Alone alone("gpt", config, 1);
    check_alike("gpt", config, alone, {2, 1, "interleaved", 0});
    check_alike("gpt", config, alone, {3, 1, "zb-v", 0});
    const Alone pair("gpt", config, 2);
    check_alike("gpt", config, pair, {2, 2, "interleaved", 1});
}

TEST_CASE("a table of the first and the last part is one stage's in a V, bit for bit") {
    Json config = config_of("gpt-tied", 3);
    const Alone tied("gpt-tied", config, 1);
    check_alike("gpt-tied", config, tied, {2, 1, "zb-v", 0});
    check_alike("gpt-tied", config, tied, {2, 1, "zb-v", 3});
    // Another block of this model runs twice, once in each stage. Its gradients have the same bits
    // only if there is a single micro batch.
    config = config_of("tied-frozen-unused", 3);
    config["gradient_accumulation_steps"] = 1;
    const Alone frozen("tied-frozen-unused", config, 1);
    check_alike("tied-frozen-unused", config, frozen, {2, 1, "zb-v", 0});
}

TEST_CASE("a table that is read by the first and the last stage is trained as one") {
    for (const std::string name : {"gpt-tied", "tied-frozen-unused"}) {
        Json config = config_of(name, 3);
        config["gradient_accumulation_steps"] = 1;
        const Alone alone(name, config, 1);
        check_alike(name, config, alone, {2, 1, "1f1b", 0});
        check_alike(name, config, alone, {2, 1, "1f1b", 3});
    }
    // With several micro batches, the table's gradient is a sum of 8 fp32 terms in another order,
    // so it errs by up to 8 x 2^-24 of their magnitudes. Adam divides by the root of the gradient's
    // square: a step moves a weight by 1e-3 whatever the gradient's size, and the rounding error by
    // 5e-10. Four steps later, a loss whose gradient has an L1 norm of 100 has in theory changed by
    // less than 2e-7. But the relative error of a gradient near zero is larger, hence the limit of
    // 1e-5.
    const Json config = config_of("gpt-tied", 4);
    const Alone alone("gpt-tied", config, 1);
    const TemporaryFolder folder;
    const auto trained =
        train_well(folder, ranks(3), "gpt-tied", in_pipeline(config, {3, 1, "1f1b", 1}));
    CHECK(largest_difference(trained.losses(), alone.result.losses()) < 1e-5);
}

TEST_CASE("pipelines of processes over schedules, stages and ZeRO", "[.long]") {
    // Models with tied tables are in tensor_test.cpp. To test one model: -c NAME.
    for (const std::string name : {"gpt", "gpt-dropout", "llama", "convnet"}) {
        DYNAMIC_SECTION(name) {
            const Json config = config_of(name, 3);
            for (const int data : {1, 2}) {
                const Alone alone(name, config, data);
                for (const ScheduleShape& shape : schedule_shapes(name == "convnet" ? 4 : 8))
                    for (int zero = 0; zero <= 3; ++zero)
                        check_alike(name, config, alone,
                                    {shape.stages, data, shape.schedule, zero});
            }
        }
    }
}

namespace {

// Trains on hosts with each of ALL_SLOTS, in three stages by each of SCHEDULES.
void check_on_hosts(const std::vector<std::string>& schedules,
                    const std::vector<std::vector<int>>& all_slots) {
    Json config = config_of("gpt", 4);
    config["dslaunch"]["eval_interval"] = 2;
    config["dslaunch"]["data"]["eval_fraction"] = 0.1;
    const Alone alone("gpt", config, 1);
    REQUIRE(alone.result.values_of("eval_loss").size() == 3);
    for (const std::string& schedule : schedules)
        for (const std::vector<int>& slots : all_slots) {
            const TemporaryFolder folder;
            INFO(schedule << " on " << slots.size() << " hosts");
            const Pipeline pipeline{3, 1, schedule};
            const auto trained =
                train_well(folder, hosts(folder, slots), "gpt", in_pipeline(config, pipeline));
            alone.check(folder, trained);
            int64_t sent = 0;
            for (const Json& line : trained.metrics)
                if (line.contains("link_bytes"))
                    sent = std::max(sent, line.at("link_bytes").at("sent").get<int64_t>());
            CHECK((sent > 0) == (slots.size() > 1));
        }
}

}  // namespace

TEST_CASE("a pipeline over hosts of unequal size evaluates and trains as one rank does") {
    check_on_hosts({"1f1b", "zb-v"}, {{2, 1}});
    check_on_hosts({"interleaved"}, {{1, 1, 1}});
}

TEST_CASE("pipelines over hosts of any size train as one rank does", "[.long]") {
    check_on_hosts({"1f1b", "interleaved", "zb-v"}, {{3}, {2, 1}, {1, 1, 1}});
}

TEST_CASE("a checkpoint of a pipeline goes on without one, and the other way round") {
    const Json whole = config_of("gpt", 4);
    const Alone alone("gpt", whole, 1);
    const std::vector<Pipeline> shapes = {{1, 1, "1f1b", 0},
                                          {2, 1, "1f1b", 1},
                                          {2, 1, "interleaved", 0},
                                          {3, 1, "zb-h1", 3},
                                          {3, 1, "zb-v", 2}};
    for (size_t from = 0; from < shapes.size(); ++from) {
        const Pipeline& before = shapes[from];
        const Pipeline& after = shapes[(from + 1) % shapes.size()];
        INFO("from " << before.stages << " stages, " << before.schedule << ", to " << after.stages
                     << ", " << after.schedule);
        const TemporaryFolder folder;
        train_well(folder, ranks(before.stages), "gpt", in_pipeline(config_of("gpt", 2), before));
        std::vector<std::string> where = ranks(after.stages);
        where.push_back("--resume");
        const TrainResult resumed = train_well(folder, where, "gpt", in_pipeline(whole, after));
        const std::vector<double> losses = resumed.losses();
        const std::vector<double> expected = alone.result.losses();
        REQUIRE(losses.size() >= 2);
        CHECK(std::vector(losses.end() - 2, losses.end()) ==
              std::vector(expected.end() - 2, expected.end()));
        CHECK((weights_of(folder) == alone.weights));
    }
}

TEST_CASE("running averages of data-parallel ranks go into stages and back as they were") {
    Json whole = config_of("convnet", 4);
    whole["gradient_accumulation_steps"] = 2;
    Json half = whole;
    half["dslaunch"]["steps"] = 2;
    const Alone alone("convnet", whole, 2);
    for (const auto& [before, after] :
         {std::pair{Pipeline{1, 2}, Pipeline{2, 2}}, {{2, 2}, {1, 2}}, {{2, 2}, {3, 2}}}) {
        INFO("from " << before.stages << " stages to " << after.stages);
        const TemporaryFolder folder;
        train_well(folder, ranks(before.stages * before.data), "convnet",
                   in_pipeline(half, before));
        std::vector<std::string> where = ranks(after.stages * after.data);
        where.push_back("--resume");
        const TrainResult resumed = train_well(folder, where, "convnet", in_pipeline(whole, after));
        const std::vector<double> losses = resumed.losses();
        const std::vector<double> expected = alone.result.losses();
        REQUIRE(losses.size() >= 2);
        CHECK(std::vector(losses.end() - 2, losses.end()) ==
              std::vector(expected.end() - 2, expected.end()));
        CHECK((weights_of(folder) == alone.weights));
        // The manifest contains the buffers of each rank, not only of the first one.
        const std::string manifest =
            content_of(folder.path() + "/out/checkpoints/step-2/manifest.json");
        CHECK(manifest.find("rank_buffer") != std::string::npos);
    }
}

TEST_CASE("as many stages as there were data-parallel ranks all have the first one's averages") {
    Json whole = config_of("convnet", 3);
    Json half = whole;
    half["dslaunch"]["steps"] = 2;
    const TemporaryFolder folder;
    train_well(folder, ranks(2), "convnet", in_pipeline(half, {1, 2}));
    std::filesystem::copy(folder.path() + "/out", folder.path() + "/kept",
                          std::filesystem::copy_options::recursive);
    const std::string resume = "--resume=" + folder.path() + "/kept/checkpoints";
    const TemporaryFolder alone, stages;
    std::vector<std::string> one = ranks(1), two = ranks(2);
    one.push_back(resume);
    two.push_back(resume);
    const TrainResult expected = train_well(alone, one, "convnet", in_pipeline(whole, {1, 1}));
    const TrainResult trained = train_well(stages, two, "convnet", in_pipeline(whole, {2, 1}));
    CHECK(trained.losses() == expected.losses());
    CHECK((weights_of(stages) == weights_of(alone)));
}

TEST_CASE("what a plan says of bytes between stages is what a run sends") {
    const int steps = 3;
    for (const std::string name : {"gpt", "gpt-tied"}) {
        const TemporaryFolder folder, planning;
        const Json config = in_pipeline(config_of(name, steps), {2, 1});
        const auto trained = train_well(folder, hosts(folder, {1, 1}), name, config);
        write_file(planning.path() + "/config.json", config.dump());
        JobProcess plan(planning, {kDslaunch, "plan", fixture_archive(name), "--config",
                                   planning.path() + "/config.json", "--world-size", "2",
                                   "--ranks-per-node", "1", "--json"});
        const int code = plan.wait();
        INFO(plan.err());
        REQUIRE(code == 0);
        const Json ranks = Json::parse(plan.out()).at("ranks");
        int64_t by_op = 0, ties = 0;
        for (const Json& instruction : ranks.at(0).at("instructions")) {
            const auto sent = instruction.at("sent_bytes").get<int64_t>();
            by_op += sent;
            if (instruction.at("op") == "Tie") ties += sent;
        }
        const auto planned = ranks.at(0).at("sent_bytes").get<int64_t>();
        CHECK(planned == by_op);
        CHECK((ties > 0) == (name == "gpt-tied"));
        CHECK(ranks.at(1).at("sent_bytes").get<int64_t>() > 0);
        const Json& kinds = trained.metrics.back().at("step_link_bytes").at("by_kind");
        CHECK(kinds.at("stage").at("sent").get<int64_t>() > 0);
        for (const char* kind : {"stage", "reduce"})
            if (kinds.contains(kind))
                CHECK(kinds.at(kind).at("sent") == kinds.at(kind).at("planned"));
        // The other bytes are the shapes in messages, and the ranks' messages at the end of a step.
        const auto sent = trained.metrics.back().at("link_bytes").at("sent").get<int64_t>();
        CHECK(sent >= steps * planned);
        CHECK(sent < steps * (planned + 64 * 1024));
    }
}

TEST_CASE("number_checkpoints counts those of the model, not of each stage, and changes no bit") {
    Json config = config_of("gpt", 3);
    const Alone alone("gpt", config, 1);
    const int checkpoints = 4;
    config["activation_checkpointing"] = {{"number_checkpoints", checkpoints}};
    check_alike("gpt", config, alone, {2, 1, "1f1b", 0});
    check_alike("gpt", config, alone, {2, 1, "interleaved", 3});
    for (const int stages : {1, 2, 3}) {
        INFO(stages << " stages");
        const TemporaryFolder folder;
        write_file(folder.path() + "/config.json", in_pipeline(config, {stages, 1}).dump());
        JobProcess plan(folder, {kDslaunch, "plan", fixture_archive("gpt"), "--config",
                                 folder.path() + "/config.json", "--world-size",
                                 std::to_string(stages), "--json"});
        REQUIRE(plan.wait() == 0);
        const Json planned = Json::parse(plan.out());
        int groups = 0;
        for (const Json& rank : planned.at("ranks"))
            groups += recompute_groups(rank.at("instructions"));
        // A group that the end of a stage cuts is counted in both stages.
        CHECK(groups >= checkpoints);
        CHECK(groups <= checkpoints + stages - 1);
    }
}

TEST_CASE("an error of a stage names the segment by its number in the model") {
    const TemporaryFolder folder;
    Json config = in_pipeline(config_of("gpt", 8), {2, 1});
    config["optimizer"]["params"]["lr"] = 1e30;  // makes the loss of the last segment not finite
    const TrainResult result = train(folder, ranks(2), fixture_archive("gpt"), config);
    INFO(result.err);
    CHECK(result.code != 0);
    std::smatch found;
    REQUIRE(std::regex_search(result.err, found, std::regex("stage 1: segments (\\d+) to (\\d+)")));
    CHECK(result.err.find(", segment " + found[2].str() + ")") != std::string::npos);
}

TEST_CASE("what a pipeline cannot do is refused before anything runs") {
    struct Refused {
        const char* model;
        Json pipeline;
        int ranks;
        const char* says;
    };
    const std::vector<Refused> cases = {
        {"gpt", {{"stages", 2}}, 3, "2 stages cannot divide 3 ranks evenly"},
        {"gpt", {{"stages", 64}}, 64, "stages"},
        {"gpt", {{"stages", 2}, {"first_segments", {1, 2}}}, 2, "first_segments"},
        {"gpt", {{"stages", 2}, {"first_segments", {99}}}, 2, "99"},
        {"gpt", {{"stages", 2}, {"schedule", "dualpipe"}}, 2, "schedule"},
        {"gpt", {{"stages", 2}, {"schedule", "interleaved"}, {"chunks", 64}}, 2, "128 segments"},
        {"gpt", {{"stages", 2}, {"schedule", "zb-v"}, {"chunks", 3}}, 2, "chunks"},
    };
    for (const Refused& refused : cases) {
        INFO(refused.pipeline.dump());
        const TemporaryFolder folder;
        Json config = config_of(refused.model, 2);
        config["dslaunch"]["pipeline"] = refused.pipeline;
        const TrainResult result = train(folder, ranks(refused.ranks > 8 ? 2 : refused.ranks),
                                         fixture_archive(refused.model), config);
        CHECK(result.code == 65);
        CHECK(result.err.find(refused.says) != std::string::npos);
    }
}

}  // namespace dslaunch::test
