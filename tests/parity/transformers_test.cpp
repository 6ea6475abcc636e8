// Comparisons with stock transformers. It reads models that were trained here, which needs the
// Python environment of tools/peers.sh (DSL_PEERS, or the place where `make bench` makes it). With
// a generation_config.json, the texts generated here are equal to the texts of its generate(). The
// last tests show which options win over that file.
#include <cstdlib>
#include <filesystem>

#include "fixture_runs.h"
#include "support/job_process.h"
#include "support/skip.h"
#include "support/temporary_folder.h"
#include "support/text_tools.h"

namespace dslaunch::test {
namespace {

std::string peers_python() {
    const auto variable = [](const char* name) {
        const char* value = std::getenv(name);
        return std::string(value == nullptr ? "" : value);
    };
    std::string peers = variable("DSL_PEERS");
    if (peers.empty()) {
        const std::string cache = variable("XDG_CACHE_HOME");
        peers = (cache.empty() ? variable("HOME") + "/.cache" : cache) + "/dslaunch/peers";
    }
    const std::string python = peers + "/bin/python";
    return std::filesystem::exists(python) ? python : "";
}

namespace fs = std::filesystem;

struct Ran {
    int code = -1;
    std::string out, err;
};

// The llama of the fixtures with a generation_config.json.
class SavedModel {
  public:
    SavedModel() {
        for (const auto& file : fs::directory_iterator(fixture_path("huggingface/llama")))
            fs::copy_file(file.path(), folder_.path() + "/" + file.path().filename().string());
    }

    Ran generate(const Json& config, std::vector<std::string> words) const {
        write_file(folder_.path() + "/generation_config.json", config.dump());
        words.insert(words.begin(), {kDslaunch, "generate", folder_.path()});
        JobProcess process(folder_, words);
        Ran ran;
        ran.code = process.wait();
        ran.out = process.out();
        ran.err = process.err();
        return ran;
    }
    [[nodiscard]] std::string ids(const Json& config, const std::vector<std::string>& more) const {
        std::vector<std::string> words = {"--prompt-ids", "5,17,2,33,9", "--as", "ids"};
        words.insert(words.end(), more.begin(), more.end());
        const Ran ran = generate(config, words);
        INFO(ran.err);
        CHECK(ran.code == 0);
        return ran.out;
    }

  private:
    TemporaryFolder folder_;
};

std::string line_of(const Json& tokens) {
    std::string line;
    for (const Json& token : tokens) line += token.dump() + " ";
    return line + "\n";
}

}  // namespace

TEST_CASE("stock transformers loads what was exported, with equal logits", "[.long]") {
    const std::string python = peers_python();
    if (python.empty())
        return report_skipped("stock transformers reading an export",
                              "there is no Python environment of tools/peers.sh in DSL_PEERS");
    const std::string script =
        std::string(test::source_dir()) + "/tests/parity/transformers_load.py";
    for (const std::string name : {"gpt2", "llama", "qwen2"}) {
        INFO(name);
        const TemporaryFolder folder;
        const auto in = [&](const char* what) { return folder.path() + "/" + what; };
        const Json config = fixture_config(fixture_facts(name), 1, 3);
        auto where = ranks(2);
        where.insert(where.end(), {"--save-interval", "3"});
        train_well(folder, where, name, config);
        run_well(folder, {python, script, "config", name, in("config")});
        run_well(folder, {kDslaunch, "ckpt", "export", in("out"), in("hf"), "--format", "hf",
                          "--strip-prefix", "model.", "--config-from", in("config")});
        run_well(folder, {kDslaunch, "ckpt", "export", in("out"), in("out.pt"), "--format",
                          "torchscript", "--model", fixture_archive(name)});
        const std::string said =
            run_well(folder, {python, "-W", "ignore", script, "check", in("hf"), in("out.pt")});
        CHECK(said.find("EQUAL") != std::string::npos);
        std::printf("%s: %s", name.c_str(), said.substr(said.find("EQUAL")).c_str());
    }
}

TEST_CASE("a folder's generation_config.json makes the texts that transformers makes") {
    const Json reference = Json::parse(
        content_of(std::string(source_dir()) + "/tests/parity/generation_config_reference.json"));
    const SavedModel model;
    REQUIRE(reference["rows"].size() > 15);
    for (const Json& row : reference["rows"]) {
        INFO(row["config"].dump());
        Json config = row["config"];
        if (!config.contains("eos_token_id")) config["eos_token_id"] = 2;
        CHECK(model.ids(config, {}) == line_of(row["tokens"]));
    }
}

TEST_CASE("an option wins over generation_config.json, which wins over the defaults, and is told") {
    const SavedModel model;
    const Json greedy = {{"do_sample", false}, {"max_new_tokens", 6}, {"eos_token_id", 2}};
    const std::string six = line_of({40, 14, 42, 40, 42, 40});
    CHECK(model.ids(greedy, {}) == six);
    CHECK(model.ids(greedy, {"--tokens", "3"}) == line_of({40, 14, 42}));
    CHECK(model.ids(greedy, {"--temperature", "5", "--top-k", "0", "--seed", "3"}) != six);
    Json drawn = greedy;
    drawn.update({{"do_sample", true}, {"temperature", 5.0}, {"top_k", 0}});
    CHECK(model.ids(drawn, {"--seed", "3"}) != six);
    CHECK(model.ids(drawn, {"--temperature", "0"}) == six);
    CHECK(model.ids(drawn, {"--top-k", "1"}) == six);
    drawn["num_beams"] = 4;
    drawn["repetition_penalty"] = 1.5;
    const Ran ran = model.generate(drawn, {"--prompt-ids", "5", "--as", "ids", "--top-k", "7"});
    CHECK_THAT(ran.err, Catch::Contains("temperature=5 top_p=1 repetition_penalty=1.5 "
                                        "max_new_tokens=6"));
    CHECK_THAT(ran.err, Catch::Contains("are not supported and have no effect: num_beams = 4"));
    const Ran full = model.generate({{"do_sample", false}, {"max_length", 3}},
                                    {"--prompt-ids", "5,17,2", "--as", "ids"});
    CHECK(full.code == 66);
    CHECK_THAT(full.err, Catch::Contains("which leaves none to generate: set --tokens"));
    CHECK(model.generate({{"temperature", "x"}}, {"--prompt-ids", "5"}).code == 66);
}

TEST_CASE("a text without a prompt begins with the model's first token") {
    const SavedModel model;
    const Json config = {{"do_sample", false}, {"max_new_tokens", 5}, {"bos_token_id", 17}};
    CHECK(model.generate(config, {"--as", "ids", "--prompt", ""}).out ==
          model.generate(config, {"--as", "ids", "--prompt-ids", "17"}).out);
}

}  // namespace dslaunch::test
