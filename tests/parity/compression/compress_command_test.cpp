// `dslaunch compress` as a user runs it: on a small random model, into a folder and into a GGUF
// file, its report as JSON, and a run that is killed and started again.
#include <chrono>
#include <cmath>
#include <csignal>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <thread>

#include "support/catch.h"
#include "support/places.h"
#include "support/train_job.h"
#include "support/write_safetensors.h"
#include "unit/storage/gguf/gguf_folders.h"

namespace dslaunch::test {
namespace {

namespace fs = std::filesystem;

// Writes a random model with LAYERS layers of width WIDTH, and returns its folder.
std::string make_model(const TemporaryFolder& place, int layers, int width) {
    const std::string folder = place.path() + "/model";
    write_folder(folder, config_of("LlamaForCausalLM", {{"vocab_size", 128},
                                                        {"hidden_size", width},
                                                        {"intermediate_size", 4 * width},
                                                        {"num_hidden_layers", layers}}));
    return folder;
}

// Writes tokens below 128, and returns their file.
std::string make_tokens(const TemporaryFolder& place) {
    std::string bytes;
    for (int i = 0; i < 200; ++i) {
        bytes += static_cast<char>((i * 37 + i / 7) % 128);
        bytes += '\0';
    }
    write_file(place.path() + "/tokens.bin", bytes);
    return place.path() + "/tokens.bin";
}

std::map<std::string, std::string> files_of(const std::string& folder) {
    std::map<std::string, std::string> files;
    for (const auto& entry : fs::recursive_directory_iterator(folder))
        if (entry.is_regular_file())
            files[fs::relative(entry.path(), folder).string()] = content_of(entry.path().string());
    return files;
}

// Writes ROWS rows of 16 tokens below VOCABULARY, as `data prepare` writes them, and returns their
// file.
std::string make_rows(const TemporaryFolder& place, int rows, int vocabulary) {
    constexpr int kLength = 16;
    std::vector<int32_t> tokens, targets;
    for (int i = 0; i < rows * kLength; ++i)
        tokens.push_back((i * 37 + i / 5 + i * i % 11) % vocabulary);
    targets.assign(tokens.begin() + 1, tokens.end());
    targets.push_back(0);
    const auto column = [&](const char* name, const std::vector<int32_t>& numbers) {
        return storage::SafetensorsEntry{
            name, DType::kI32, {rows, kLength}, std::as_bytes(std::span(numbers))};
    };
    const std::string path = place.path() + "/rows.safetensors";
    write_safetensors(path, std::vector{column("tokens", tokens), column("targets", targets)});
    return path;
}

}  // namespace

TEST_CASE("compress writes a folder and a GGUF file, and reports sizes, losses and errors") {
    const TemporaryFolder place;
    const std::string model = make_model(place, 2, 64), tokens = make_tokens(place);
    struct Row {
        const char* form;
        const char* out;
        double bits_min, bits_max;  // of a weight of a matrix, with its scales
    };
    // int4 has a scale and a minimum for each 128 weights at most, q4_0 a scale of 16 bits for 32.
    for (const Row& row : {Row{"int4", "/int4", 4.1, 5.1}, Row{"q4_0", "/q4.gguf", 4.5, 5.5}}) {
        INFO(row.form);
        const std::string out = place.path() + row.out;
        const ProgramEnd ran =
            run_dslaunch(place, {"compress", model, "--to", row.form, "-o", out, "--eval-data",
                                 tokens, "--context", "16", "--json"});
        INFO(ran.err);
        REQUIRE(ran.code == 0);
        const Json report = Json::parse(ran.out);
        CHECK(report.at("model") == model);
        CHECK(report.at("form") == row.form);
        CHECK(report.at("out") == out);
        const double bits = report.at("bits_per_weight");
        CHECK(bits > row.bits_min);
        CHECK(bits < row.bits_max);
        CHECK(bits == Approx(8 * report.at("weight_bytes_after").get<double>() /
                             report.at("weights").get<double>()));
        CHECK(report.at("weight_bytes_before").get<int64_t>() ==
              4 * report.at("weights").get<int64_t>());
        CHECK(report.at("bytes_after") < report.at("bytes_before"));
        CHECK(report.at("seconds").get<double>() >= 0);
        CHECK(report.at("peak_memory_bytes").get<int64_t>() > 0);
        CHECK(report.at("error_of") == "weights");
        const auto errors = report.at("errors").get<std::map<std::string, double>>();
        CHECK(errors.count("model.layers.1.mlp.down_proj.weight") == 1);
        double worst = 0;
        for (const auto& [name, error] : errors) {
            INFO(name);
            CHECK(error > 0.001);  // multiples of 1/64 are not on a grid of 16 values
            CHECK(error < 0.2);
            worst = std::max(worst, error);
        }
        CHECK(report.at("worst_error") == worst);
        CHECK(errors.at(report.at("worst").get<std::string>()) == worst);
        // The losses are those that eval gives for both models.
        for (const auto& [key, path] :
             {std::pair<const char*, std::string>{"before", model}, {"after", out}}) {
            const ProgramEnd eval =
                run_dslaunch(place, {"eval", path, "--data", tokens, "--context", "16", "--json"});
            INFO(eval.err);
            REQUIRE(eval.code == 0);
            CHECK(Json::parse(eval.out).at("loss").get<double>() ==
                  Approx(report.at(key).at("loss").get<double>()).epsilon(1e-9));
            CHECK(report.at(key).at("perplexity").get<double>() ==
                  Approx(std::exp(report.at(key).at("loss").get<double>())));
        }
        CHECK(report.at("before").at("loss") != report.at("after").at("loss"));
        // Without --force, nothing that is there is replaced.
        const ProgramEnd again =
            run_dslaunch(place, {"compress", model, "--to", row.form, "-o", out});
        CHECK(again.code != 0);
        CHECK(again.err.find("--force") != std::string::npos);
    }
}

TEST_CASE("a compress that is killed and started again ends with the bytes of one that was not") {
    const TemporaryFolder place;
    const std::string model = make_model(place, 16, 256);
    const auto command = [&](const std::string& out) {
        return std::vector<std::string>{kDslaunch, "compress", model,    "--to",      "int4",
                                        "-o",      out,        "--json", "--threads", "1"};
    };
    const std::string whole = place.path() + "/whole", killed = place.path() + "/killed";
    {
        JobProcess process(place, command(whole));
        REQUIRE(process.wait() == 0);
    }
    bool was_cut = false;
    for (int attempt = 0; attempt < 20 && !was_cut; ++attempt) {
        fs::remove_all(killed);
        fs::remove_all(killed + ".partial");
        JobProcess process(place, command(killed));
        const std::string layer = killed + ".partial/layer-00002.safetensors";
        for (int wait = 0;
             wait < 20000 && !fs::exists(layer) && !fs::exists(killed + "/config.json"); ++wait)
            std::this_thread::sleep_for(std::chrono::microseconds(200));
        process.signal(SIGKILL);
        static_cast<void>(process.wait());
        was_cut = fs::exists(layer) && !fs::exists(killed + "/config.json");
    }
    REQUIRE(was_cut);
    JobProcess process(place, command(killed));
    REQUIRE(process.wait() == 0);
    CHECK(files_of(killed) == files_of(whole));
    CHECK_FALSE(fs::exists(killed + ".partial"));
}

TEST_CASE("more steps of autoround lower the errors of all layers") {
    const TemporaryFolder place;
    const std::string model = make_model(place, 3, 64), rows = make_rows(place, 16, 128);
    const auto report_of = [&](const std::vector<std::string>& options, const char* out) {
        std::vector<std::string> words = {
            "compress",  model, "--to",   "int2", "--calibrate",     rows,
            "--threads", "2",   "--json", "-o",   place.path() + out};
        words.insert(words.end(), options.begin(), options.end());
        const ProgramEnd ran = run_dslaunch(place, words);
        INFO(ran.err);
        REQUIRE(ran.code == 0);
        return Json::parse(ran.out);
    };
    const Json gptq = report_of({"--method", "gptq"}, "/gptq");
    static_cast<void>(report_of({}, "/default"));
    CHECK(files_of(place.path() + "/gptq") == files_of(place.path() + "/default"));
    const Json one = report_of({"--method", "autoround", "--iterations", "1"}, "/one");
    const Json many = report_of({"--method", "autoround", "--iterations", "120"}, "/many");
    const auto errors = [](const Json& report) {
        return report.at("errors").get<std::map<std::string, double>>();
    };
    REQUIRE(errors(many).size() == 3);
    CHECK(errors(many).at("model.layers.0") < 0.9 * errors(one).at("model.layers.0"));
    CHECK(many.at("weight_bytes_after") == gptq.at("weight_bytes_after"));
    for (const auto& [layer, error] : errors(many)) CHECK(error < errors(one).at(layer));
}

// The layer that computes gradients is LibTorch's, and the exact rows come from the decoder without
// LibTorch. If the two differed in a family's mask, rotation or norm, rounding to 8 bits would not
// be the only difference.
TEST_CASE("the layers of autoround compute what the decoder computes, in all kinds of families") {
    const TemporaryFolder place;
    for (const char* family : {"llama3",        "llama-yarn", "llama-dynamic", "phi3-long",
                               "gemma2",        "gemma3",     "gpt-neox",      "gptj",
                               "falcon-groups", "phi3",       "qwen3-moe",     "qwen2-moe",
                               "cohere2",       "olmo2",      "mixtral",       "stablelm-parallel",
                               "glm4",          "smollm3",    "gpt-bigcode",   "nemotron"}) {
        const std::string model = fixture_path(std::string("huggingface/") + family);
        const Json config = Json::parse(content_of(model + "/config.json"));
        const std::string rows = make_rows(place, 8, config.at("vocab_size").get<int>());
        const ProgramEnd ran =
            run_dslaunch(place, {"compress", model, "--to", "int8", "--group", "0", "--calibrate",
                                 rows, "--method", "autoround", "--iterations", "2", "--json", "-o",
                                 place.path() + "/" + family});
        INFO(family << ": " << ran.err);
        REQUIRE(ran.code == 0);
        // The error grows from layer to layer. If the error of rounding changes which expert a
        // token chooses, the outputs of this token differ completely.
        const bool has_experts = config.contains("num_experts_per_tok");
        double most = 0;
        for (const auto& [layer, error] :
             Json::parse(ran.out).at("errors").get<std::map<std::string, double>>()) {
            INFO(layer);
            most += 0.015;
            CHECK(error < (has_experts ? 0.08 : most));
        }
    }
}

TEST_CASE("a method that does not fit the other options is refused with what to do") {
    const TemporaryFolder place;
    const std::string model = make_model(place, 1, 32), rows = make_rows(place, 2, 128);
    struct Row {
        std::vector<std::string> options;
        const char* text;
    };
    for (const Row& row :
         {Row{{"--to", "int4", "--method", "autoround"}, "--calibrate"},
          Row{{"--to", "int4", "--method", "gptq"}, "--calibrate"},
          Row{{"--to", "int4", "--method", "nearest", "--calibrate", rows},
              "leave out --calibrate"},
          Row{{"--to", "w8a8", "--method", "autoround", "--calibrate", rows}, "use gptq"},
          Row{{"--to", "int4", "--iterations", "5"}, "--method"}}) {
        std::vector<std::string> words = {"compress", model, "-o", place.path() + "/out"};
        words.insert(words.end(), row.options.begin(), row.options.end());
        const ProgramEnd ran = run_dslaunch(place, words);
        CHECK(ran.code == 64);
        CHECK_THAT(ran.err, Catch::Contains(row.text));
        CHECK_FALSE(fs::exists(place.path() + "/out"));
    }
}

}  // namespace dslaunch::test
