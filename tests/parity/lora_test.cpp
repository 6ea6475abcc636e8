// Adapters that are trained beside a Hugging Face folder, compared with the results of PEFT from
// the same start (tests/fixtures/make_lora.py). Also their checkpoints, merging, and stock names.
#include <cmath>

#include "fixture_runs.h"

namespace dslaunch::test {
namespace {

// The model in huggingface/NAME and its adapter in lora/NAME.
struct Tuned {
    std::string name;
    std::vector<std::string> targets;
    std::vector<std::string> modules_to_save;
    bool rslora = false;

    [[nodiscard]] std::string model() const { return fixture_path("huggingface/" + name); }
    // Copies the model below FOLDER, without its own dropout, and returns the path of the copy.
    [[nodiscard]] std::string model_in(const TemporaryFolder& folder) const {
        const std::string copy = folder.path() + "/model";
        std::filesystem::copy(model(), copy);
        Json facts = Json::parse(content_of(copy + "/config.json"));
        for (const char* key : {"attn_pdrop", "embd_pdrop", "resid_pdrop"})
            if (facts.contains(key)) facts[key] = 0;
        write_file(copy + "/config.json", facts.dump());
        return copy;
    }
    [[nodiscard]] std::string file(const std::string& path) const {
        return fixture_path("lora/" + name + "/" + path);
    }
    [[nodiscard]] Json config(int rows) const {
        Json config;
        config["train_micro_batch_size_per_gpu"] = rows;
        config["gradient_clipping"] = 0;
        config["optimizer"] = {{"type", "AdamW"},
                               {"params", {{"lr", 0.01}, {"weight_decay", 0.01}}}};
        config["dslaunch"] = {
            {"steps", 50},
            {"data", {{"train", file("tokens.u16.bin")}, {"context", 16}, {"shuffle", false}}},
            {"lora",
             {{"r", 4},
              {"alpha", 8},
              {"rslora", rslora},
              {"targets", targets},
              {"init", file("begin")}}}};
        if (!modules_to_save.empty())
            config["dslaunch"]["lora"]["modules_to_save"] = modules_to_save;
        return config;
    }
};

const std::vector<Tuned> kTuned = {{"llama", {"q_proj", "v_proj", "down_proj"}, {"lm_head"}, false},
                                   {"gpt2", {"*.c_attn", "*.c_fc"}, {}, true}};

double largest_difference(const Stored& a, const Stored& b) {
    CHECK(a.shape == b.shape);
    const std::vector<float> left = floats_of(a), right = floats_of(b);
    return test::largest_difference({left.begin(), left.end()}, {right.begin(), right.end()});
}

TrainResult train_tuned(const TemporaryFolder& folder, const std::vector<std::string>& where,
                        const Tuned& tuned, const Json& config) {
    TrainResult result = train(folder, where, tuned.model_in(folder), config);
    INFO(tuned.name << "\n" << result.err);
    REQUIRE(result.code == 0);
    return result;
}

}  // namespace

TEST_CASE("adapters train as PEFT trains them, on one rank and on shards") {
    for (const Tuned& tuned : kTuned) {
        const auto expected = read_safetensors(tuned.file("expected.safetensors"));
        const std::vector<float> losses = floats_of(expected.at("losses"));
        for (const int count : {1, 2}) {
            INFO(tuned.name << " on " << count);
            const TemporaryFolder folder;
            Json config = tuned.config(2 / count);
            // Two ranks keep their shards on disk. At the end no tensor of the model in memory then
            // has the trained values.
            const Json disk = {{"device", "nvme"}, {"nvme_path", folder.path()}};
            if (count > 1)
                config["zero_optimization"] = {
                    {"stage", 3}, {"offload_param", disk}, {"offload_optimizer", disk}};
            const TrainResult result = train_tuned(folder, ranks(count), tuned, config);
            CHECK(test::largest_difference(result.losses(), {losses.begin(), losses.end()}) < 1e-4);
            const auto made =
                read_safetensors(folder.path() + "/out/adapter/adapter_model.safetensors");
            CHECK(made.size() + 1 == expected.size());
            for (const auto& [name, tensor] : made) {
                INFO(name);
                REQUIRE(expected.count(name) == 1);
                CHECK(largest_difference(tensor, expected.at(name)) < 1e-3);
            }
            // Nothing of the base is written, neither here nor in a checkpoint.
            CHECK_FALSE(std::filesystem::exists(folder.path() + "/out/model.safetensors"));
        }
    }
}

TEST_CASE("adapters train on ranks that share layers or positions as PEFT trains them") {
    for (const Tuned& tuned : kTuned) {
        const auto expected = read_safetensors(tuned.file("expected.safetensors"));
        const std::vector<float> losses = floats_of(expected.at("losses"));
        for (const char* shared : {"tensor", "sequence"}) {
            INFO(tuned.name << " " << shared);
            const TemporaryFolder folder;
            Json config = tuned.config(2);
            config["dslaunch"][shared] = {{"size", 2}};
            const TrainResult result = train_tuned(folder, ranks(2), tuned, config);
            CHECK(test::largest_difference(result.losses(), {losses.begin(), losses.end()}) < 1e-4);
            const auto made =
                read_safetensors(folder.path() + "/out/adapter/adapter_model.safetensors");
            CHECK(made.size() + 1 == expected.size());
            for (const auto& [name, tensor] : made) {
                INFO(name);
                REQUIRE(expected.count(name) == 1);
                CHECK(largest_difference(tensor, expected.at(name)) < 1e-3);
            }
        }
    }
}

TEST_CASE("a base in fewer bits is trained beside as one rank alone computes it, everywhere") {
    const TemporaryFolder disk;
    const Json nvme = {{"device", "nvme"}, {"nvme_path", disk.path()}};
    const Json shards = {{"stage", 3}, {"offload_param", nvme}, {"offload_optimizer", nvme}};
    struct Kind {
        const Tuned& tuned;
        const char* base;
        int count;
        Json changes;
    };
    const std::vector<Kind> kinds = {
        {kTuned[0], "nf4", 2, {{"zero_optimization", shards}}},
        {kTuned[0], "int4", 3, {{"zero_optimization", {{"stage", 3}}}}},
        {kTuned[1], "int8", 1, Json::object()},
        {kTuned[1], "nf4", 2, {{"dslaunch", {{"pipeline", {{"stages", 2}}}}}}},
        {kTuned[0], "int8", 2, {{"dslaunch", {{"sequence", {{"size", 2}}}}}}},
        {kTuned[0], "int4", 2, {{"bf16", {{"enabled", true}}}}}};
    for (const Kind& kind : kinds) {
        const TemporaryFolder folder;
        Json config = kind.tuned.config(2);
        config.merge_patch(kind.changes);
        config["dslaunch"]["lora"]["base"] = kind.base;
        write_file(folder.path() + "/config.json", config.dump());
        std::vector<std::string> words = {kDslaunch, "verify"};
        for (const std::string& word : ranks(kind.count)) words.push_back(word);
        words.insert(words.end(), {"--device", "cpu", "--config", folder.path() + "/config.json",
                                   kind.tuned.model_in(folder)});
        JobProcess process(folder, words);
        const int code = process.wait();
        INFO(config.dump() << "\n" << process.out() << process.err());
        CHECK(code == 0);
        CHECK_THAT(process.out(), Catch::Contains("match what one rank alone computes"));
    }
}

TEST_CASE("fewer bits of a base change its losses a little, and shards of them not at all") {
    const Tuned& tuned = kTuned.front();
    const auto losses = [&](const char* base, int count) {
        const TemporaryFolder folder;
        Json config = tuned.config(2 / count);
        config["dslaunch"]["lora"]["base"] = base;
        if (count > 1) config["zero_optimization"] = {{"stage", 3}};
        return train_tuned(folder, ranks(count), tuned, config).losses();
    };
    const std::vector<double> exact = losses("as_is", 1);
    std::map<std::string, double> off;
    for (const char* base : {"int8", "int4", "nf4"}) {
        const std::vector<double> alone = losses(base, 1);
        off[base] = test::largest_difference(alone, exact);
        CHECK(test::largest_difference(losses(base, 2), alone) < 1e-4);
    }
    INFO(off["int8"] << " " << off["int4"] << " " << off["nf4"]);
    CHECK(off["int8"] > 0);
    CHECK(off["int8"] < off["int4"]);
    CHECK(off["int8"] < off["nf4"]);
    CHECK(std::max(off["int4"], off["nf4"]) < 0.3);
}

TEST_CASE("a run with adapters resumes as if it had not stopped, at another number of ranks") {
    const Tuned& tuned = kTuned.front();
    const TemporaryFolder folder, other;
    Json config = tuned.config(2);
    config["dslaunch"]["steps"] = 20;
    train_tuned(folder, ranks(1), tuned, config);
    config["dslaunch"]["steps"] = 10;
    train_tuned(other, ranks(1), tuned, config);
    config["dslaunch"]["steps"] = 20;
    config["train_micro_batch_size_per_gpu"] = 1;
    config["zero_optimization"] = {{"stage", 3}};
    auto where = ranks(2);
    where.emplace_back("--resume=auto");
    std::filesystem::remove_all(other.path() + "/model");
    train_tuned(other, where, tuned, config);
    const auto whole = read_safetensors(folder.path() + "/out/adapter/adapter_model.safetensors");
    const auto resumed = read_safetensors(other.path() + "/out/adapter/adapter_model.safetensors");
    REQUIRE(whole.size() == resumed.size());
    for (const auto& [name, tensor] : whole) {
        INFO(name);
        CHECK(largest_difference(tensor, resumed.at(name)) < 1e-4);
    }
}

TEST_CASE("adapters are not resumed beside other weights") {
    const Tuned& tuned = kTuned.front();
    const TemporaryFolder folder;
    Json config = tuned.config(2);
    config["dslaunch"]["steps"] = 2;
    train_tuned(folder, ranks(1), tuned, config);
    config["dslaunch"]["steps"] = 4;
    const std::string weights = folder.path() + "/model/model-00003-of-00004.safetensors";
    std::string bytes = content_of(weights);
    // The last elements of the file, of 16 or 32 bits each, belong to a frozen weight.
    REQUIRE(bytes.size() > 4096);
    for (size_t i = bytes.size() - 4096; i < bytes.size(); i += 2) bytes[i] ^= 1;
    write_file(weights, bytes);
    TrainResult result =
        train(folder, {"--num_gpus", "1", "--resume=auto"}, folder.path() + "/model", config);
    INFO(result.err);
    CHECK(result.code == 73);
    CHECK_THAT(result.err,
               Catch::Contains("its adapters were trained on base weights that differ"));
    // The settings of --lora are compared before the base weights.
    const auto told = [&](const Json& other) {
        result =
            train(folder, {"--num_gpus", "1", "--resume=auto"}, folder.path() + "/model", other);
        CHECK(result.code == 73);
        return result.err;
    };
    const auto rank = config["dslaunch"]["lora"]["r"].get<int>();
    Json other = config;
    other["dslaunch"].erase("lora");
    CHECK_THAT(told(other),
               Catch::Contains(fmt::format("its run trained adapters with r={},", rank)));
    CHECK_THAT(result.err, Catch::Contains("but --lora is not given: use --lora 'r="));
    other = config;
    other["dslaunch"]["lora"].erase("init");
    other["dslaunch"]["lora"]["r"] = 2 * rank;
    CHECK_THAT(told(other), Catch::Contains(fmt::format(", not with r={},", 2 * rank)));
}

TEST_CASE("a merged model is the model with its adapter") {
    for (const Tuned& tuned : kTuned) {
        const TemporaryFolder folder;
        const std::string adapter = tuned.file("begin"), merged = folder.path() + "/merged";
        // The initial adapter adds nothing, so the text is the same. A trained adapter changes the
        // text.
        const std::vector<std::string> prompt = {"--prompt-ids", "5,17,2", "--temperature", "0",
                                                 "--tokens",     "8",      "--as",          "ids"};
        const auto generate = [&](std::vector<std::string> words) {
            words.insert(words.begin(), {kDslaunch, "generate"});
            words.insert(words.end(), prompt.begin(), prompt.end());
            return run_well(folder, words);
        };
        CHECK(generate({tuned.model()}) == generate({tuned.model(), "--adapter", adapter}));
        Json config = tuned.config(2);
        train_tuned(folder, ranks(1), tuned, config);
        const std::string trained = folder.path() + "/out/adapter";
        run_well(folder, {kDslaunch, "model", "merge", tuned.model(), trained, "-o", merged});
        const std::string with_adapter = generate({tuned.model(), "--adapter", trained});
        CHECK(with_adapter != generate({tuned.model()}));
        CHECK(generate({merged}) == with_adapter);
        CHECK(generate({merged + "/model.pt"}) == with_adapter);
    }
}

TEST_CASE("what is no adapter of this model is refused by name") {
    const Tuned& llama = kTuned.front();
    const TemporaryFolder folder;
    Json config = llama.config(2);
    config["dslaunch"]["lora"]["targets"] = {"q_porj"};
    TrainResult result = train(folder, ranks(1), llama.model(), config);
    CHECK(result.code == 65);
    CHECK_THAT(result.err, Catch::Contains("`q_porj` matches no linear layer of the model"));
    config = llama.config(2);
    config["dslaunch"]["lora"]["init"] = kTuned.back().file("begin");
    result = train(folder, ranks(1), llama.model(), config);
    INFO(result.err);
    CHECK(result.code == 65);  // the scale of that adapter is another one
    JobProcess merge(folder, {kDslaunch, "model", "merge", llama.model(),
                              kTuned.back().file("begin"), "-o", folder.path() + "/merged"});
    CHECK(merge.wait() == 66);
    CHECK_THAT(merge.err(), Catch::Contains("belongs to no layer of the model"));
}

TEST_CASE("a merge beside files of another model is refused, and so is half of an adapter") {
    const Tuned& llama = kTuned.front();
    const TemporaryFolder folder;
    const std::string model = llama.model_in(folder), adapter = folder.path() + "/adapter";
    const std::string out = folder.path() + "/merged";
    std::filesystem::copy(llama.file("begin"), adapter);
    const auto refusal = [&](const std::string& to) {
        JobProcess merge(folder, {kDslaunch, "model", "merge", model, adapter, "-o", to});
        const int code = merge.wait();
        INFO(merge.err());
        CHECK(code == 66);
        return merge.err();
    };
    CHECK_THAT(refusal(model), Catch::Contains("would replace the input itself"));
    CHECK_FALSE(std::filesystem::exists(model + "/model.safetensors"));
    CHECK_THAT(refusal(adapter), Catch::Contains("would replace the input itself"));
    // If the folder contains shards of a model, they would be read instead of the written file.
    write_file(out + "/model-00001-of-00002.safetensors", "");
    CHECK_THAT(refusal(out),
               Catch::Contains("model-00001-of-00002.safetensors: belongs to another"));
    std::filesystem::remove_all(out);
    write_file(out + "/chat_template.jinja", "");
    CHECK_THAT(refusal(out), Catch::Contains("chat_template.jinja: belongs to another model"));
    std::filesystem::remove_all(out);
    write_file(out + "/adapter_config.json", "{}");
    CHECK_THAT(refusal(out), Catch::Contains("adapter_config.json: belongs to another model"));
    std::filesystem::remove_all(out);

    Json facts = Json::parse(content_of(adapter + "/adapter_config.json"));
    facts["r"] = facts["r"].get<int>() * 2;
    write_file(adapter + "/adapter_config.json", facts.dump());
    CHECK_THAT(refusal(out), Catch::Contains("has rank 4 and the matching lora_B has rank 4, but"));
    CHECK_FALSE(std::filesystem::exists(out));
    facts["r"] = facts["r"].get<int>() / 2;
    write_file(adapter + "/adapter_config.json", facts.dump());
    // A whole file is read even if an index names other files, as in transformers. This one is not
    // even a valid file.
    write_file(model + "/model.safetensors", "");
    CHECK_THAT(refusal(out), Catch::Contains(model + "/model.safetensors"));
}

}  // namespace dslaunch::test
