#include <fstream>

#include "base/error.h"
#include "launcher/inputs/packed_config.h"
#include "launcher/run/commands.h"
#include "support/catch.h"
#include "support/job_process.h"

namespace dslaunch {

using namespace launcher;

TEST_CASE("a data reference goes into the config and everything else keeps its order") {
    const std::string packed =
        "{\n  \"z\": 1,\n  \"dslaunch\": {\n    \"steps\": 2,\n    \"data\": {\n      \"train\": "
        "\"new\",\n"
        "      \"context\": 8,\n      \"eval\": \"held\"\n    }\n  },\n  \"a\": 2\n}\n";
    const auto with = [](const char* text, const DataReferences& references) {
        return with_data(config::parse_config(text, "conf.json"), references);
    };
    CHECK(
        with(
            R"({"z": 1, "dslaunch": {"steps": 2, "data": {"train": "old", "context": 8}}, "a": 2})",
            {.train = "new", .eval = "held"}) == packed);
    // HJSON and YAML are packed as JSON.
    CHECK(with("z: 1 # what\ndslaunch: {steps: 2, data: {train: \"old\", context: 8}}\na: 2\n",
               {.train = "new", .eval = "held"}) == packed);
    CHECK(with_data(config::parse_config("z: 1\na: [x, 2.5e-4]", "conf.yaml"), {}) ==
          "{\n  \"z\": 1,\n  \"a\": [\"x\", 0.00025]\n}\n");
    CHECK(with("{}", {}) == "{}\n");
    for (const char* bad : {"{\"dslaunch\": 3}", "{\"dslaunch\": {\"data\": []}}"}) {
        INFO(bad);
        CHECK_THROWS_WITH(with(bad, {.train = "t"}), Catch::StartsWith("conf.json: "));
    }
}

TEST_CASE("a packed data path is relative to the archive's folder") {
    CHECK(relative_to_archive("data/kjv.tokens", "train.pt") == "data/kjv.tokens");
    CHECK(relative_to_archive("data/kjv.tokens", "data/train.pt") == "kjv.tokens");
    CHECK(relative_to_archive("kjv.tokens", "out/train.pt") == "../kjv.tokens");
    CHECK(relative_to_archive("/data/kjv.tokens", "out/train.pt") == "/data/kjv.tokens");
}

TEST_CASE("a config is checked before it is packed, with all its problems") {
    const test::TemporaryFolder folder;
    const std::string config = folder.path() + "/ds_config.json";
    const auto pack = [&](const std::string& text, const std::vector<std::string>& words) {
        std::ofstream(config) << text;
        std::vector<std::string> all = {folder.path() + "/no.pt"};
        all.insert(all.end(), words.begin(), words.end());
        try {
            (void)pack_command(all);
            return std::string("packed");
        } catch (const Error& error) {
            CHECK(error.code() == (text == "{}" ? ExitCode::kInput : ExitCode::kConfig));
            return std::string(error.what());
        }
    };
    const char* bad = "{\"train_batch_sizes\": 2, \"train_batch_size\": -1}";
    for (const auto& words : {std::vector<std::string>{"--config", config},
                              std::vector<std::string>{"--extra", "ds_config.json=" + config}}) {
        INFO(words.front());
        CHECK_THAT(pack(bad, words), Catch::Contains("2 problems in the config") &&
                                         Catch::Contains("train_batch_sizes") &&
                                         Catch::Contains("train_batch_size"));
        CHECK_THAT(pack("{,}", words), Catch::Contains(config + ":1:2: not valid JSON"));
        CHECK_THAT(pack("{\"a\": 1, \"a\": 2}", words), Catch::Contains("duplicate key"));
        // A good config passes. The next error is about the archive, which is missing.
        CHECK_THAT(pack("{}", words), Catch::Contains("no.pt"));
    }
}

}  // namespace dslaunch
