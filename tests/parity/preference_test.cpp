// Pairs of answers, from lines of JSON to a trained model, compared with the results of TRL's
// DPOTrainer for the same lines (tests/fixtures/make_preferences.py).
#include <cmath>
#include <cstring>

#include "fixture_runs.h"

namespace dslaunch::test {
namespace {

std::string preference_file(const std::string& name) {
    return fixture_path("preferences/" + name);
}

const Json& expected() {
    static const Json facts = Json::parse(content_of(preference_file("expected.json")));
    return facts;
}

std::string output_of_command(const TemporaryFolder& folder,
                              const std::vector<std::string>& words) {
    const ProgramEnd ended = run_dslaunch(folder, words);
    INFO(words[0] << "\n" << ended.out << ended.err);
    REQUIRE(ended.code == 0);
    return ended.out + ended.err;
}

// The fixture's model with a tokenizer, and its pairs as rows.
class Preferences {
  public:
    explicit Preferences(bool with_reference = true) {
        std::filesystem::copy(fixture_path("huggingface/llama"), model());
        std::filesystem::copy(preference_file("tokenizer.json"), model() + "/tokenizer.json");
        prepared_ = output_of_command(folder_, prepare(preference_file("pairs.jsonl")));
        if (with_reference)
            output_of_command(folder_, {"eval", model(), "--data", rows(), "--write-reference"});
    }

    [[nodiscard]] const TemporaryFolder& folder() const { return folder_; }
    [[nodiscard]] std::string model() const { return folder_.path() + "/llama"; }
    [[nodiscard]] std::string rows() const { return folder_.path() + "/pairs.safetensors"; }
    [[nodiscard]] const std::string& prepared() const { return prepared_; }

    [[nodiscard]] std::vector<std::string> prepare(const std::string& lines) const {
        return {"data",
                "prepare",
                lines,
                "--model",
                model(),
                "--context",
                expected().at("context").dump(),
                "-o",
                rows(),
                "--force"};
    }

    // Returns the config for KIND, a name in expected.json.
    [[nodiscard]] Json config(const std::string& kind, int64_t count = 1) const {
        Json config;
        config["train_micro_batch_size_per_gpu"] = expected().at("rows").get<int64_t>() / count;
        config["gradient_clipping"] = 0;
        config["optimizer"] = {{"type", "AdamW"},
                               {"params", {{"lr", expected().at("lr")}, {"weight_decay", 0}}}};
        config["dslaunch"] = {
            {"steps", expected().at("steps")},
            {"data", {{"train", rows()}, {"shuffle", false}}},
            {"loss", {{"name", kind == "lora" ? "dpo" : kind}, {"beta", expected().at("beta")}}}};
        if (kind == "lora")
            config["dslaunch"]["lora"] = {{"r", 4},
                                          {"alpha", 8},
                                          {"targets", {"q_proj", "v_proj"}},
                                          {"init", preference_file("begin")}};
        return config;
    }

    [[nodiscard]] TrainResult train_well(const Json& config,
                                         const std::vector<std::string>& where = ranks(1),
                                         const std::string& of_model = "") const {
        std::filesystem::remove_all(folder_.path() + "/out");
        TrainResult result = train(folder_, where, of_model.empty() ? model() : of_model, config);
        INFO(result.err);
        REQUIRE(result.code == 0);
        return result;
    }

  private:
    TemporaryFolder folder_;
    std::string prepared_;
};

double largest_from_trl(const TrainResult& result, const std::string& kind) {
    return largest_difference(result.losses(), expected().at(kind).get<std::vector<double>>());
}

// Returns the largest difference of a reward or a margin from TRL's. Checks that accuracies are
// equal, except in steps where the rewards of some pair are so close that rounding decides.
double largest_reward_from_trl(const TrainResult& result, const std::string& kind) {
    double largest = 0;
    size_t step = 0, judged = 0;
    for (const Json& line : result.metrics) {
        if (!line.contains("loss")) continue;
        INFO("step " << step + 1);
        const auto trl = expected().at("rewards").at(kind).at(step++).get<std::vector<double>>();
        const auto off = [&](const char* name, double value) {
            largest = std::max(largest, std::abs(line.at(name).get<double>() - value));
        };
        off("rewards/chosen", trl[0]);
        off("rewards/rejected", trl[1]);
        off("rewards/margins", trl[0] - trl[1]);
        if (trl[3] < 2e-4) continue;
        CHECK(line.at("rewards/accuracies").get<double>() == trl[2]);
        ++judged;
    }
    CHECK(judged >= 44);
    CHECK(step == expected().at("rewards").at(kind).size());
    return largest;
}

}  // namespace

TEST_CASE("pairs are prepared as TRL does it, with the reference that it computes") {
    const Preferences pairs;
    INFO(pairs.prepared());
    CHECK_THAT(pairs.prepared(), Catch::Contains("lines: 21 preference; 0 bad"));
    CHECK_THAT(pairs.prepared(), Catch::Contains("1 cut, 0 dropped; 1 left out"));
    CHECK_THAT(pairs.prepared(), Catch::Contains("1 pair with two identical answers"));
    CHECK_THAT(pairs.prepared(), Catch::Contains("20 pairs in 40 rows of length 24"));
    const Stored reference = read_safetensors(pairs.rows()).at("reference");
    CHECK(reference.shape == std::vector<int64_t>{20, 2});
    std::vector<float> values(40);
    REQUIRE(reference.bytes.size() == values.size() * sizeof(float));
    std::memcpy(values.data(), reference.bytes.data(), reference.bytes.size());
    for (size_t i = 0; i < values.size(); ++i)
        // Each value is a sum of up to 20 logarithms of about 4.
        CHECK(values[i] ==
              Approx(expected().at("references")[i / 2][i % 2].get<double>()).margin(1e-4));
    const std::string shown =
        output_of_command(pairs.folder(), {"data", "show", pairs.rows(), "--model", pairs.model()});
    CHECK_THAT(shown, Catch::Contains("chosen, log-probability -"));
    CHECK_THAT(shown, Catch::Contains("</s>]]"));
    CHECK_THAT(output_of_command(pairs.folder(), {"data", "stats", pairs.rows()}),
               Catch::Contains("pairs    20") && Catch::Contains("of " + pairs.model()));
}

TEST_CASE("dpo, ipo and orpo train as TRL trains them, with adapters too") {
    const Preferences pairs;
    for (const std::string kind : {"dpo", "lora", "ipo", "orpo"}) {
        INFO(kind);
        const TrainResult result = pairs.train_well(pairs.config(kind));
        CHECK(largest_from_trl(result, kind) < 1e-4);
        CHECK(largest_reward_from_trl(result, kind) < 1e-4);
    }
    // The test would notice a wrong beta, or a loss without the reference.
    Json config = pairs.config("dpo");
    config["dslaunch"]["loss"]["beta"] = 0.4;
    CHECK(largest_from_trl(pairs.train_well(config), "dpo") > 1e-3);
    config = pairs.config("dpo");
    config["dslaunch"]["loss"]["name"] = "simpo";
    CHECK(largest_from_trl(pairs.train_well(config), "dpo") > 1e-3);
}

TEST_CASE("pairs train on shards, stages and in 16 bits as on one rank") {
    const Preferences pairs;
    for (const int stage : {1, 2, 3}) {
        INFO("ZeRO " << stage);
        Json config = pairs.config(stage == 2 ? "lora" : "dpo", 2);
        config["zero_optimization"] = {{"stage", stage}};
        const std::string kind = stage == 2 ? "lora" : "dpo";
        const TrainResult result = pairs.train_well(config, ranks(2));
        CHECK(largest_from_trl(result, kind) < 1e-4);
        CHECK(largest_reward_from_trl(result, kind) < 1e-4);
    }
    for (const char* shared : {"tensor", "sequence"}) {
        INFO(shared);
        Json config = pairs.config("dpo");
        config["dslaunch"][shared] = {{"size", 2}};
        const TrainResult result = pairs.train_well(config, ranks(2));
        CHECK(largest_from_trl(result, "dpo") < 1e-4);
        CHECK(largest_reward_from_trl(result, "dpo") < 1e-4);
        config["dslaunch"]["loss"]["name"] = "orpo";
        CHECK(largest_from_trl(pairs.train_well(config, ranks(2)), "orpo") < 1e-4);
    }
    Json staged = pairs.config("dpo", 2);
    staged["gradient_accumulation_steps"] = 2;
    staged["dslaunch"]["pipeline"] = {{"stages", 2}};
    staged["dslaunch"]["data"]["eval"] = pairs.rows();
    const TrainResult result = pairs.train_well(staged, ranks(2));
    CHECK(largest_from_trl(result, "dpo") < 1e-4);
    CHECK(result.metrics.back().at("eval_samples") == 20);
    CHECK(largest_reward_from_trl(result, "dpo") < 1e-4);
    const Json& held_out = result.metrics.back();
    CHECK(held_out.at("eval_loss").get<double>() < std::log(2.0));
    CHECK(held_out.at("eval_rewards/accuracies").get<double>() > 0.9);
    CHECK(held_out.at("eval_rewards/margins").get<double>() ==
          Approx(held_out.at("eval_rewards/chosen").get<double>() -
                 held_out.at("eval_rewards/rejected").get<double>()));
    Json half = pairs.config("lora");
    half["bf16"] = {{"enabled", true}};
    // bf16 rounds the logits' logarithms to 8 bits. A pair has 30 tokens, and their sum is
    // multiplied by beta.
    CHECK(largest_from_trl(pairs.train_well(half), "lora") < 0.03);
    half.erase("bf16");
    half["fp16"] = {{"enabled", true}, {"initial_scale_power", 8}};
    CHECK(largest_from_trl(pairs.train_well(half), "lora") < 0.01);
}

TEST_CASE("an exported program that gives logits trains on pairs as the folder does") {
    const Preferences pairs;
    const std::string program = preference_file("llama.pt2");
    for (const std::string kind : {"dpo", "orpo"}) {
        INFO(kind);
        const TrainResult result = pairs.train_well(pairs.config(kind), ranks(1), program);
        CHECK(largest_from_trl(result, kind) < 1e-4);
    }
    Json shared = pairs.config("dpo", 2);
    shared["zero_optimization"] = {{"stage", 3}};
    CHECK(largest_from_trl(pairs.train_well(shared, ranks(2), program), "dpo") < 1e-4);
}

TEST_CASE("a tuned model is told by its reward accuracy") {
    const Preferences pairs;
    const std::vector<std::string> words = {"eval", pairs.model(), "--data", pairs.rows(),
                                            "--json"};
    const auto accuracy = [&](std::vector<std::string> more) {
        more.insert(more.begin(), words.begin(), words.end());
        const ProgramEnd ended = run_dslaunch(pairs.folder(), more);
        INFO(ended.err);
        REQUIRE(ended.code == 0);
        return Json::parse(ended.out);
    };
    // The model is its own reference, so it gains nothing.
    const Json before = accuracy({});
    CHECK(before.at("reward_accuracy") == 0);
    CHECK(before.at("reward_margin") == 0);
    Json config = pairs.config("lora");
    config["dslaunch"]["steps"] = 60;
    static_cast<void>(pairs.train_well(config));
    const Json after = accuracy({"--adapter", pairs.folder().path() + "/out/adapter"});
    CHECK(after.at("reward_accuracy").get<double>() > 0.9);
    CHECK(after.at("reward_margin").get<double>() > 1);
    CHECK(after.at("pairs") == 20);
}

TEST_CASE("what is no pair, and options that pairs have not, are refused by name") {
    const Preferences pairs(/*with_reference=*/false);
    const std::string lines = pairs.folder().path() + "/lines.jsonl";
    write_file(lines,
               "{\"prompt\": \"t3\", \"chosen\": \" t4\", \"rejected\": \" t5\"}\n"
               "{\"text\": \"t3 t4\"}\n"
               "{\"prompt\": \"t3\", \"chosen\": \"\", \"rejected\": \" t5\"}\n");
    const std::string said = output_of_command(pairs.folder(), pairs.prepare(lines));
    CHECK_THAT(said,
               Catch::Contains(":2: left out: is not a pair of answers, but the lines before"));
    CHECK_THAT(said, Catch::Contains(":3: left out: chosen: the answer is empty"));
    CHECK_THAT(said, Catch::Contains("1 pair in 2 rows"));
    for (const auto& [more, message] :
         std::vector<std::pair<std::vector<std::string>, std::string>>{
             {{"--pack"}, "--pack cannot be used, because the lines are pairs of answers"},
             {{"--learn-all"},
              "--learn-all cannot be used, because the lines are pairs of answers"},
             {{"--long", "split"}, "--long split cannot be used, because the lines are pairs"},
             {{"--max-bad-lines", "1"}, "this makes more than 1 bad lines"}}) {
        std::vector<std::string> words = pairs.prepare(lines);
        words.insert(words.end(), more.begin(), more.end());
        const ProgramEnd ended = run_dslaunch(pairs.folder(), words);
        INFO(ended.err);
        CHECK(ended.code != 0);
        CHECK_THAT(ended.err, Catch::Contains(message));
    }
    const TrainResult result = train(pairs.folder(), ranks(1), pairs.model(), pairs.config("dpo"));
    CHECK(result.code == 66);
    CHECK_THAT(result.err, Catch::Contains("has no column 'reference'"));
    Json without = pairs.config("dpo");
    without["dslaunch"].erase("loss");
    const TrainResult plain = train(pairs.folder(), ranks(1), pairs.model(), without);
    CHECK(plain.code == 66);
    CHECK_THAT(plain.err,
               Catch::Contains(
                   "its rows are pairs of answers, which need a preference loss: give --loss dpo"));
    // simpo needs no reference.
    Json config = pairs.config("dpo");
    config["dslaunch"]["loss"]["name"] = "simpo";
    config["dslaunch"]["steps"] = 2;
    static_cast<void>(pairs.train_well(config));
    const ProgramEnd ended = run_dslaunch(
        pairs.folder(), {"eval", pairs.model(), "--data", fixture_path("lora/llama/tokens.u16.bin"),
                         "--context", "16", "--write-reference"});
    CHECK(ended.code == 66);
    CHECK_THAT(ended.err, Catch::Contains("contains no pairs of answers"));
}

TEST_CASE("a model that is trained with another model's reference is warned of once") {
    const Preferences pairs;
    const std::string other = pairs.folder().path() + "/other";
    std::filesystem::copy(pairs.model(), other);
    // The same model in another place is no other model, and one changed number makes another.
    Json config = pairs.config("dpo");
    config["dslaunch"]["steps"] = 1;
    const auto warnings = [&](const std::string& model, const Json& with) {
        const std::string said = pairs.train_well(with, ranks(1), model).err;
        size_t count = 0;
        for (size_t at = 0;
             (at = said.find("its reference was made with", at)) != std::string::npos; ++at)
            ++count;
        return count;
    };
    CHECK(warnings(other, config) == 0);
    const std::string weights = other + "/model-00002-of-00004.safetensors";
    std::string bytes = content_of(weights);
    uint64_t header = 0;
    std::memcpy(&header, bytes.data(), sizeof header);
    bytes[8 + header] = static_cast<char>(bytes[8 + header] ^ 1);
    write_file(weights, bytes);
    CHECK(warnings(other, config) == 1);
    CHECK(warnings("", config) == 0);
    // An adapter from which training starts belongs to the model.
    Json lora = pairs.config("lora");
    lora["dslaunch"]["steps"] = 1;
    CHECK(warnings("", lora) == 1);
    const std::string said = output_of_command(
        pairs.folder(), {"eval", pairs.model(), "--data", pairs.rows(), "--write-reference",
                         "--adapter", preference_file("begin")});
    CHECK_THAT(said, Catch::Contains(", in place of the reference of " + pairs.model() + "\n"));
    CHECK(warnings("", lora) == 0);
    CHECK(warnings("", config) == 1);
}

}  // namespace dslaunch::test
