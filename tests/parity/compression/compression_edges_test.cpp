// compression_training beside what else a run does: states and parameters on disk, methods that
// begin later, chance, fixed weights, pruned heads and channels, and a model that keeps only some
// of its layers.
#include <torch/csrc/jit/serialization/import.h>

#include <cmath>
#include <map>
#include <set>

#include "parity/fixture_runs.h"
#include "unit/storage/gguf/gguf_folders.h"

namespace dslaunch::test {
namespace {

namespace fs = std::filesystem;

// Returns one method of compression_training: GROUP's `params` for MODULES.
Json method(const Json& shared, const Json& params, const std::vector<std::string>& modules) {
    Json made = {{"shared_parameters", {{"enabled", true}, {"schedule_offset", 0}}}};
    made["shared_parameters"].update(shared);
    made["different_groups"]["g"] = {{"params", params}, {"modules", modules}};
    return made;
}

Json rounding(const Json& shared, int bits) {
    Json made = {{"quantize_weight_in_forward", false}, {"quantize_groups", 2}};
    made.update(shared);
    return method(made, {{"start_bits", bits}, {"target_bits", bits}}, {"blocks"});
}

Json gpt_config(const Json& methods, int64_t steps = 6) {
    Json config = fixture_config(fixture_facts("gpt"), 1, steps);
    config["compression_training"] = methods;
    config["dslaunch"]["communication"]["reduce"] = "micro_step";
    return config;
}

struct Run {
    std::vector<double> losses;
    Weights weights;
};

Run run_of(const std::string& model, int world_size, const Json& config) {
    const TemporaryFolder folder;
    const TrainResult trained = train(folder, ranks(world_size), model, config);
    INFO(trained.err);
    REQUIRE(trained.code == 0);
    return {trained.losses(), read_safetensors(folder.path() + "/out/model.safetensors")};
}

void check_equal(const Run& found, const Run& expected) {
    CHECK(found.losses == expected.losses);
    check_equal_weights(found.weights, expected.weights);
}

size_t distinct(const Stored& stored) {
    const std::vector<float> values = floats_of(stored);
    return std::set<float>(values.begin(), values.end()).size();
}

// Returns the columns of MATRIX, [out, in], that are not all zeros.
std::vector<std::vector<float>> columns_left(const Stored& matrix) {
    const std::vector<float> values = floats_of(matrix);
    const auto out = static_cast<size_t>(matrix.shape[0]),
               in = static_cast<size_t>(matrix.shape[1]);
    std::vector<std::vector<float>> left;
    for (size_t c = 0; c < in; ++c) {
        std::vector<float> column;
        for (size_t r = 0; r < out; ++r) column.push_back(values[r * in + c]);
        const auto is_zero = [](float value) { return value == 0; };
        if (!std::all_of(column.begin(), column.end(), is_zero)) left.push_back(column);
    }
    return left;
}

}  // namespace

TEST_CASE("compressed training has the same bits with its states and parameters on disk") {
    const TemporaryFolder disk;
    Json methods;
    methods["weight_quantization"] = rounding(Json::object(), 5);
    methods["sparse_pruning"] = method({{"method", "topk"}}, {{"dense_ratio", 0.4}}, {"qkv"});
    Json config = gpt_config(methods);
    config["zero_optimization"]["stage"] = 3;
    for (const int world_size : {1, 2}) {
        const Run in_memory = run_of(fixture_archive("gpt"), world_size, config);
        Json on_disk = config;
        for (const char* what : {"offload_optimizer", "offload_param"})
            on_disk["zero_optimization"][what] = {{"device", "nvme"}, {"nvme_path", disk.path()}};
        INFO(world_size << " ranks");
        check_equal(run_of(fixture_archive("gpt"), world_size, on_disk), in_memory);
        CHECK(distinct(in_memory.weights.at("blocks.1.proj.weight")) <= 2 * 32);
    }
}

TEST_CASE("masks of scores with a schedule_offset change nothing before it, and mask afterwards") {
    constexpr size_t kOffset = 3;
    Json methods;
    methods["sparse_pruning"] = method({{"method", "topk"}, {"schedule_offset", kOffset}},
                                       {{"dense_ratio", 0.25}}, {"fc", "qkv"});
    const Run plain = run_of(fixture_archive("gpt"), 2, gpt_config(Json::object()));
    for (const int stage : {0, 3}) {
        Json config = gpt_config(methods);
        config["zero_optimization"]["stage"] = stage;
        const Run masked = run_of(fixture_archive("gpt"), 2, config);
        INFO("stage " << stage);
        REQUIRE(masked.losses.size() == plain.losses.size());
        for (size_t step = 0; step < masked.losses.size(); ++step) {
            INFO("step " << step + 1);
            CHECK((masked.losses[step] == plain.losses[step]) == (step < kOffset));
        }
        for (const char* name : {"blocks.0.fc.weight", "blocks.2.qkv.weight"}) {
            const std::vector<float> values = floats_of(masked.weights.at(name));
            const auto kept =
                std::count_if(values.begin(), values.end(), [](float value) { return value != 0; });
            CHECK(kept == std::lround(std::ceil(0.25 * static_cast<double>(values.size()))));
        }
    }
}

TEST_CASE("rounding by chance has the same bits at every ZeRO stage, and is not to nearest") {
    Json methods;
    methods["weight_quantization"] = rounding({{"rounding", "stochastic"}}, 4);
    Json nearest = methods;
    nearest["weight_quantization"]["shared_parameters"]["rounding"] = "nearest";
    for (const int world_size : {1, 2, 3}) {
        const Run first = run_of(fixture_archive("gpt"), world_size, gpt_config(methods));
        for (const int stage : {2, 3}) {
            Json config = gpt_config(methods);
            config["zero_optimization"]["stage"] = stage;
            INFO(world_size << " ranks, stage " << stage);
            check_equal(run_of(fixture_archive("gpt"), world_size, config), first);
        }
        if (world_size == 1)
            CHECK(run_of(fixture_archive("gpt"), 1, gpt_config(nearest)).losses != first.losses);
    }
}

TEST_CASE("weights that are not trained are rounded for their layers, and stay otherwise") {
    const TemporaryFolder folder;
    torch::jit::Module module = torch::jit::load(fixture_archive("gpt"));
    for (const auto& parameter : module.named_parameters())
        if (parameter.name.starts_with("blocks.0.") || parameter.name.starts_with("blocks.2."))
            parameter.value.set_requires_grad(false);
    const std::string model = folder.path() + "/frozen.pt";
    module.save(model);
    Json methods;
    methods["weight_quantization"] = rounding(Json::object(), 3);
    const Run first = run_of(model, 1, gpt_config(methods));
    const size_t values_max = 2 * 8;  // two groups of 3 bits
    CHECK(distinct(first.weights.at("blocks.0.fc.weight")) <= values_max);
    CHECK(distinct(first.weights.at("blocks.1.fc.weight")) <= values_max);
    const Weights before = [&] {
        Json still = gpt_config(Json::object(), 1);
        still["optimizer"]["params"]["lr"] = 0;
        return run_of(model, 1, still).weights;
    }();
    CHECK(distinct(before.at("blocks.0.fc.weight")) > 100);
    CHECK(first.weights.at("blocks.0.fc.bias").bytes == before.at("blocks.0.fc.bias").bytes);
    CHECK(first.weights.at("blocks.1.fc.bias").bytes != before.at("blocks.1.fc.bias").bytes);
    for (const int world_size : {1, 2})
        for (const int stage : {0, 2, 3}) {
            Json config = gpt_config(methods);
            config["zero_optimization"]["stage"] = stage;
            const Run found = run_of(model, world_size, config);
            INFO(world_size << " ranks, stage " << stage);
            if (world_size == 1) check_equal(found, first);
            // Weights that are not trained become the same on any number of ranks.
            CHECK(found.weights.at("blocks.2.out.weight").bytes ==
                  first.weights.at("blocks.2.out.weight").bytes);
        }
}

TEST_CASE("pruned heads are left out of smaller weights") {
    const TemporaryFolder folder;
    const std::string model = folder.path() + "/model";
    write_folder(model, config_of("LlamaForCausalLM", {{"num_key_value_heads", 4}}));
    std::string tokens;
    for (int i = 0; i < 400; ++i) tokens += {static_cast<char>(i * 7 % 32), '\0'};
    write_file(folder.path() + "/tokens.bin", tokens);
    Json config = {
        {"train_micro_batch_size_per_gpu", 2},
        {"optimizer", {{"type", "AdamW"}, {"params", {{"lr", 1e-3}}}}},
        {"dslaunch",
         {{"steps", 3}, {"data", {{"train", folder.path() + "/tokens.bin"}, {"context", 16}}}}}};
    Json heads = method({{"method", "topk"}, {"num_heads", 4}}, {{"dense_ratio", 0.5}}, {"o_proj"});
    heads["different_groups"]["g"]["related_modules"] =
        Json::array({Json::array({"q_proj", "k_proj", "v_proj"})});
    config["compression_training"]["head_pruning"] = heads;
    const TrainResult trained = train(folder, ranks(2), model, config);
    INFO(trained.err);
    REQUIRE(trained.code == 0);
    const Weights whole = read_safetensors(folder.path() + "/out/model.safetensors");
    const Weights smaller = read_safetensors(folder.path() + "/out/smaller/model.safetensors");
    using Shape = std::vector<int64_t>;
    for (const std::string layer : {"model.layers.0.self_attn.", "model.layers.1.self_attn."}) {
        INFO(layer);
        const Stored& output = smaller.at(layer + "o_proj.weight");
        CHECK(output.shape == Shape{32, 16});
        for (const char* name : {"q_proj.weight", "k_proj.weight", "v_proj.weight"})
            CHECK(smaller.at(layer + name).shape == Shape{16, 32});
        CHECK(columns_left(whole.at(layer + "o_proj.weight")) == columns_left(output));
    }
}

TEST_CASE("pruned channels are left out of smaller weights if the loss stays the same") {
    const auto config_with = [&](int64_t offset) {
        Json config = fixture_config(fixture_facts("convnet"), 1, 4);
        config["optimizer"]["params"]["lr"] = 1e-2;
        Json channels = method({{"method", "topk"}, {"schedule_offset", offset}},
                               {{"dense_ratio", 0.5}}, {"conv1"});
        channels["different_groups"]["g"]["related_modules"] =
            Json::array({Json::array({"bn1", "conv2"})});
        config["compression_training"]["channel_pruning"] = channels;
        return config;
    };
    // A BatchNorm makes its bias of a masked channel. The bias stays 0, at which a ReLU has no
    // gradient.
    const TemporaryFolder folder, trained;
    const TrainResult still = train(folder, ranks(1), fixture_archive("convnet"), config_with(0));
    INFO(still.err);
    REQUIRE(still.code == 0);
    const Weights smaller = read_safetensors(folder.path() + "/out/smaller/model.safetensors");
    using Shape = std::vector<int64_t>;
    CHECK(smaller.at("stages.1.conv1.weight").shape == Shape{8, 8, 3, 3});
    CHECK(smaller.at("stages.1.bn1.weight").shape == Shape{8});
    CHECK(smaller.at("stages.1.bn1.running_var").shape == Shape{8});
    CHECK(smaller.at("stages.1.conv2.weight").shape == Shape{16, 8, 3, 3});
    // Before it is masked, a channel learns a bias.
    const TrainResult other = train(trained, ranks(1), fixture_archive("convnet"), config_with(3));
    INFO(other.err);
    REQUIRE(other.code == 0);
    CHECK_FALSE(fs::exists(trained.path() + "/out/smaller"));
}

TEST_CASE("without a teacher, layer_reduction keeps the named layers of a folder's model") {
    const TemporaryFolder folder, again;
    const std::string model = folder.path() + "/model";
    write_folder(model, config_of("LlamaForCausalLM", {{"num_hidden_layers", 5}}));
    std::string tokens;
    for (int i = 0; i < 400; ++i) tokens += {static_cast<char>(i * 7 % 32), '\0'};
    write_file(folder.path() + "/tokens.bin", tokens);
    const auto config_with = [&](int64_t steps, double lr) {
        Json config = {
            {"train_micro_batch_size_per_gpu", 2},
            {"optimizer", {{"type", "AdamW"}, {"params", {{"lr", lr}, {"weight_decay", 0}}}}}};
        config["dslaunch"] = {
            {"steps", steps},
            {"data",
             {{"train", folder.path() + "/tokens.bin"}, {"context", 16}, {"shuffle", false}}}};
        return config;
    };
    Json config = config_with(1, 0);
    config["compression_training"]["layer_reduction"] = {{"enabled", true},
                                                         {"keep_number_layer", 2},
                                                         {"module_name_prefix", "model.layers"},
                                                         {"teacher_layer", {1, 3}},
                                                         {"other_module_name", {"model.norm"}}};
    const TrainResult trained = train(folder, ranks(2), model, config);
    INFO(trained.err);
    REQUIRE(trained.code == 0);
    CHECK(trained.err.find("keeps only 2 layers of its own") != std::string::npos);
    const std::string out = folder.path() + "/out";
    CHECK(Json::parse(content_of(out + "/config.json")).at("num_hidden_layers") == 2);
    const Weights before = read_safetensors(model + "/model.safetensors");
    const Weights kept = read_safetensors(out + "/model.safetensors");
    for (const auto& [name, stored] : kept) {
        std::string source = name;
        if (const size_t at = source.find("layers."); at != std::string::npos)
            source[at + 7] = source[at + 7] == '0' ? '1' : '3';
        INFO(name << " from " << source);
        CHECK(stored.bytes == before.at(source).bytes);
    }
    CHECK(before.size() - kept.size() == 3 * 9);  // the weights of three layers
    // The folder that was written is a model with these two layers.
    const TrainResult reread = train(again, ranks(2), out, config_with(1, 0));
    INFO(reread.err);
    REQUIRE(reread.code == 0);
    CHECK(reread.losses() == trained.losses());
    // It trains with the same bits at stage 3, and after a resume.
    config = config_with(4, 1e-3);
    config["compression_training"]["layer_reduction"] = {
        {"enabled", true}, {"module_name_prefix", "model.layers"}, {"teacher_layer", {1, 3}}};
    const Run first = run_of(model, 2, config);
    config["zero_optimization"]["stage"] = 3;
    check_equal(run_of(model, 2, config), first);
    const auto refusal = [&](const Json& reduction, const std::string& target) {
        config["compression_training"]["layer_reduction"].update(reduction);
        const TemporaryFolder place;
        const TrainResult refused = train(place, ranks(1), target, config);
        CHECK(refused.code == 65);
        return refused.err;
    };
    CHECK(refusal({{"teacher_layer", {1, 5}}}, model).find("there is no layer 5") !=
          std::string::npos);
    CHECK(refusal({{"teacher_layer", {1, 1}}}, model).find("layer 1 twice") != std::string::npos);
    CHECK(refusal({{"teacher_layer", {1, 3}}}, fixture_archive("gpt"))
              .find("only a Hugging Face folder can keep some of its own layers") !=
          std::string::npos);
    CHECK(refusal({{"module_name_prefix", "bert.layer"}}, model).find("are `model.layers`") !=
          std::string::npos);
}

}  // namespace dslaunch::test
