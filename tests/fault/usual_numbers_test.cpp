// A pretrained folder is tuned without options for rate, clipping, batch and steps. The job is the
// same as a job that names the usual values. A resumed run continues with the values that it began
// with.
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "support/catch.h"
#include "support/train_job.h"

namespace dslaunch::test {
namespace {

struct Tuned {
    int code = -1;
    std::string out, err;
    std::vector<double> losses;
    std::string weights;
};

class Tuning {
  public:
    Tuning() {
        std::filesystem::copy(fixture_path("huggingface/llama"), model());
        std::filesystem::copy(fixture_path("preferences/tokenizer.json"),
                              model() + "/tokenizer.json");
        JobProcess prepare(
            folder_, {kDslaunch, "data", "prepare", fixture_path("tables/texts.jsonl"), "--model",
                      model(), "--context", "24", "-o", rows()});
        REQUIRE(prepare.wait() == 0);
    }

    [[nodiscard]] std::string model() const { return folder_.path() + "/llama"; }
    [[nodiscard]] std::string rows() const { return folder_.path() + "/rows.safetensors"; }

    // Tunes the model on COUNT ranks with MORE options, into OUT in the test's folder.
    [[nodiscard]] Tuned tune(const std::vector<std::string>& more, const std::string& out = "out",
                             int count = 1) const {
        const std::string output = folder_.path() + "/" + out;
        std::vector<std::string> words = {
            kDslaunch, "--device", "cpu",  "--num_gpus", std::to_string(count),
            "-o",      output,     model()};
        words.insert(words.end(), more.begin(), more.end());
        JobProcess process(folder_, words);
        Tuned tuned;
        tuned.code = process.wait();
        tuned.out = process.out();
        tuned.err = process.err();
        std::ifstream metrics(output + "/metrics.jsonl");
        for (std::string line; std::getline(metrics, line);)
            tuned.losses.push_back(Json::parse(line).value("loss", 0.0));
        if (std::filesystem::exists(output + "/model.safetensors"))
            tuned.weights = content_of(output + "/model.safetensors");
        return tuned;
    }
    [[nodiscard]] Tuned tune_well(const std::vector<std::string>& more,
                                  const std::string& out = "out", int count = 1) const {
        Tuned tuned = tune(more, out, count);
        INFO(tuned.err);
        REQUIRE(tuned.code == 0);
        return tuned;
    }

  private:
    TemporaryFolder folder_;
};

struct Column {
    std::string name, dtype;
    std::vector<int64_t> shape;
    std::string bytes;
};

void write_columns(const std::string& path, const std::vector<Column>& columns) {
    Json header;
    std::string bytes;
    for (const Column& column : columns) {
        header[column.name] = {
            {"dtype", column.dtype},
            {"shape", column.shape},
            {"data_offsets", {bytes.size(), bytes.size() + column.bytes.size()}}};
        bytes += column.bytes;
    }
    const std::string text = header.dump();
    const uint64_t length = text.size();
    write_file(path,
               std::string(reinterpret_cast<const char*>(&length), sizeof length) + text + bytes);
}

// Writes the fixture's llama into FOLDER with VOCABULARY tokens and weights of 0.
void write_wide_model(const std::string& folder, int64_t vocabulary) {
    const std::string from = fixture_path("huggingface/llama");
    std::filesystem::create_directory(folder);
    Json config = Json::parse(content_of(from + "/config.json"));
    config["vocab_size"] = vocabulary;
    write_file(folder + "/config.json", config.dump());
    std::vector<Column> weights;
    for (int shard = 1; shard <= 4; ++shard) {
        const std::string bytes =
            content_of(fmt::format("{}/model-0000{}-of-00004.safetensors", from, shard));
        uint64_t length = 0;
        std::memcpy(&length, bytes.data(), sizeof length);
        const Json header = Json::parse(bytes.substr(8, length));
        for (const auto& [name, entry] : header.items()) {
            if (name == "__metadata__") continue;
            Column column{name, entry.at("dtype"), entry.at("shape").get<std::vector<int64_t>>(),
                          ""};
            if (name.find("embed_tokens") != name.npos || name.find("lm_head") != name.npos)
                column.shape[0] = vocabulary;
            size_t numel = 1;
            for (const int64_t extent : column.shape) numel *= static_cast<size_t>(extent);
            column.bytes.resize(numel * sizeof(float));
            REQUIRE(column.dtype == "F32");
            weights.push_back(column);
        }
    }
    write_columns(folder + "/model.safetensors", weights);
}

void check_same_run(const Tuned& silent, const Tuned& named) {
    REQUIRE_FALSE(named.losses.empty());
    CHECK(silent.losses == named.losses);
    CHECK(silent.weights == named.weights);
}

}  // namespace

TEST_CASE("a folder that is tuned without a number is tuned with the usual ones") {
    const Tuning tuning;
    const Tuned silent = tuning.tune_well({"--data", tuning.rows()}, "silent");
    const Tuned named =
        tuning.tune_well({"--data", tuning.rows(), "--lr", "2e-5", "--set", "gradient_clipping=1",
                          "--micro-batch", "8", "--accumulation", "1", "--epochs", "1"},
                         "named");
    check_same_run(silent, named);
    CHECK_THAT(silent.err, Catch::Contains("chosen, because nothing sets it: 8 rows per step") &&
                               Catch::Contains("one pass over the data") &&
                               Catch::Contains("lr 2e-05, usual for all weights of a pretrained "
                                               "model (--lr)") &&
                               Catch::Contains("gradients clipped at norm 1"));
    CHECK_THAT(named.err, !Catch::Contains("chosen, because nothing sets it"));
    // Other values make another run. Two ranks make the same run, except for the order of sums.
    CHECK(tuning.tune_well({"--data", tuning.rows(), "--lr", "3e-5"}, "other").weights !=
          silent.weights);
    const Tuned two = tuning.tune_well({"--data", tuning.rows()}, "two", 2);
    REQUIRE(two.losses.size() == silent.losses.size());
    for (size_t i = 0; i < two.losses.size(); ++i)
        CHECK(std::abs(two.losses[i] - silent.losses[i]) < 1e-5);
}

TEST_CASE("a token file without a context has the model's, and a rate far too high is warned of") {
    const Tuning tuning;
    const std::string tokens = fixture_path("lora/llama/tokens.u16.bin");
    const Tuned silent = tuning.tune_well({"--data", tokens, "--steps", "2"}, "silent");
    check_same_run(
        silent, tuning.tune_well({"--data", tokens, "--steps", "2", "--context", "64"}, "named"));
    CHECK_THAT(silent.err, Catch::Contains("64 tokens per sample: all positions of the model"));
    const Tuned high =
        tuning.tune_well({"--data", tokens, "--steps", "1", "--lr", "0.001"}, "high");
    const size_t warned = high.err.find("0.001 is 50 times the usual rate"),
                 step = high.err.find("step 1");
    CHECK(warned != std::string::npos);
    CHECK(warned < step);
}

TEST_CASE("a run that is resumed has the numbers that it began with") {
    const Tuning tuning;
    const std::vector<std::string> began = {
        "--data", tuning.rows(),        "--lr",   "1e-3", "--set", "gradient_clipping=0",
        "--set",  "train_batch_size=2", "--steps"};
    const auto with_steps = [&](const char* steps) {
        std::vector<std::string> words = began;
        words.emplace_back(steps);
        return words;
    };
    const Tuned whole = tuning.tune_well(with_steps("6"), "whole");
    static_cast<void>(tuning.tune_well(with_steps("3"), "parts"));
    const Tuned resumed =
        tuning.tune_well({"--data", tuning.rows(), "--resume", "--steps", "6"}, "parts");
    CHECK(resumed.losses == whole.losses);
    CHECK(resumed.weights == whole.weights);
    CHECK_THAT(resumed.err, Catch::Contains("from the resumed run"));
    // Nor does a run that is resumed without --steps take more steps than it had.
    const Tuned again = tuning.tune_well({"--data", tuning.rows(), "--resume"}, "parts");
    CHECK_THAT(again.err + again.out, Catch::Contains("6"));
    CHECK(again.losses == whole.losses);
}

TEST_CASE("rows that another model's tokenizer has made are noticed") {
    const Tuning tuning;
    int runs = 0;
    const auto said = [&] {
        return tuning
            .tune_well({"--data", tuning.rows(), "--steps", "1"}, "out" + std::to_string(++runs))
            .err;
    };
    const std::string warning = "its rows were made with another model's tokenizer";
    CHECK_THAT(said(), !Catch::Contains(warning));
    // Another spelling of the same tokenizer counts as the same one. If two words are exchanged, it
    // is another one.
    const std::string path = tuning.model() + "/tokenizer.json";
    Json tokenizer = Json::parse(content_of(path));
    write_file(path, tokenizer.dump(4) + "\n");
    CHECK_THAT(said(), !Catch::Contains(warning));
    Json& words = tokenizer["model"]["vocab"];
    std::swap(words["t3"], words["t4"]);
    write_file(path, tokenizer.dump());
    CHECK_THAT(said(), Catch::Contains(warning) && Catch::Contains("dslaunch data prepare"));
}

TEST_CASE("rows of bytes are noticed where a model has a large vocabulary") {
    const TemporaryFolder folder;
    const std::string model = folder.path() + "/wide", rows = folder.path() + "/rows.safetensors";
    write_wide_model(model, 8192);
    const auto said = [&](const std::string& text) {
        std::string tokens, targets;
        for (const char c : text.substr(0, text.size() / 16 * 16)) {
            const int32_t token = static_cast<unsigned char>(c);
            tokens.append(reinterpret_cast<const char*>(&token), sizeof token);
        }
        const auto count = static_cast<int64_t>(tokens.size() / 16 / sizeof(int32_t));
        write_columns(rows, {{"tokens", "I32", {count, 16}, tokens},
                             {"targets", "I32", {count, 16}, tokens}});
        JobProcess process(folder, {kDslaunch, "plan", model, "--data", rows});
        const int code = process.wait();
        INFO(process.err());
        CHECK(code == 0);
        return process.err();
    };
    std::string text, sums;
    for (int i = 0; i < 20; ++i) {
        text += "In the beginning was the word. ";
        sums += fmt::format("{}+{}={};", i, 7 * i, 8 * i);
    }
    CHECK_THAT(said(text), Catch::Contains("they look like bytes") &&
                               Catch::Contains("dslaunch data prepare TEXT --model") &&
                               Catch::Contains("'targets' contain the same numbers"));
    CHECK_THAT(said(sums), !Catch::Contains("look like"));
}

TEST_CASE("config check shows what a run of a folder would take") {
    const Tuning tuning;
    const TemporaryFolder folder;
    const std::string file = folder.path() + "/ds_config.json";
    write_file(file, "{}");
    const auto rate = [&](const std::vector<std::string>& more) {
        std::vector<std::string> words = {kDslaunch, "config", "check", file, "--json"};
        words.insert(words.end(), more.begin(), more.end());
        JobProcess process(folder, words);
        CHECK(process.wait() == 0);
        const Json resolved = Json::parse(process.out());
        for (const Json& value : resolved.at("values"))
            if (value.at("path") == "optimizer.params.lr") return value.at("value").get<double>();
        return 0.0;
    };
    CHECK(rate({}) == 1e-3);
    CHECK(rate({"--model", tuning.model()}) == 2e-5);
    // A config.json beside the config, without weights, does not make the folder a pretrained
    // model.
    std::filesystem::copy_file(fixture_path("huggingface/llama/config.json"),
                               folder.path() + "/config.json");
    CHECK(rate({}) == 1e-3);
    for (const auto& weights : std::filesystem::directory_iterator(tuning.model()))
        if (weights.path().filename().string().starts_with("model"))
            std::filesystem::copy(weights.path(), folder.path());
    CHECK(rate({}) == 2e-5);
}

TEST_CASE("bf16 is told to be slow where the processor has no instructions for it") {
    const Tuning tuning;
    const TemporaryFolder folder;
    const auto said = [&](const char* type) {
        JobProcess process(folder, {"env", "DSL_ISA=scalar", kDslaunch, "--device", "cpu",
                                    "--num_gpus", "1", "--no-output", tuning.model(), "--data",
                                    tuning.rows(), "--steps", "1", "--set", type});
        CHECK(process.wait() == 0);
        return process.err();
    };
    CHECK_THAT(said("bf16.enabled=true"), Catch::Contains("bf16 is slow on this processor") &&
                                              Catch::Contains("--set bf16.enabled=false"));
    CHECK_THAT(said("bf16.enabled=false"), !Catch::Contains("bf16 is slow"));
}

TEST_CASE("a plan needs no context where the model has positions") {
    const Tuning tuning;
    const TemporaryFolder folder;
    JobProcess process(folder, {kDslaunch, "plan", tuning.model(), "--json"});
    INFO(process.err());
    REQUIRE(process.wait() == 0);
}

}  // namespace dslaunch::test
