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
#include "support/train_job.h"
#include "unit/storage/gguf/gguf_folders.h"

namespace dslaunch::test {
namespace {

namespace fs = std::filesystem;

struct Ran {
    int code = -1;
    std::string out, err;
};

Ran run(const TemporaryFolder& place, const std::vector<std::string>& words) {
    std::vector<std::string> command = {kDslaunch};
    command.insert(command.end(), words.begin(), words.end());
    JobProcess process(place, command);
    Ran ran;
    ran.code = process.wait();
    ran.out = process.out();
    ran.err = process.err();
    return ran;
}

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
        const Ran ran = run(place, {"compress", model, "--to", row.form, "-o", out, "--eval-data",
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
            const Ran eval =
                run(place, {"eval", path, "--data", tokens, "--context", "16", "--json"});
            INFO(eval.err);
            REQUIRE(eval.code == 0);
            CHECK(Json::parse(eval.out).at("loss").get<double>() ==
                  Approx(report.at(key).at("loss").get<double>()).epsilon(1e-9));
            CHECK(report.at(key).at("perplexity").get<double>() ==
                  Approx(std::exp(report.at(key).at("loss").get<double>())));
        }
        CHECK(report.at("before").at("loss") != report.at("after").at("loss"));
        // Without --force, nothing that is there is replaced.
        const Ran again = run(place, {"compress", model, "--to", row.form, "-o", out});
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

}  // namespace dslaunch::test
