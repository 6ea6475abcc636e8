// Folders whose tokenizer_config.json names a class of transformers, compared with its
// AutoTokenizer. tests/fixtures/tokenizers/make_tokenizer_classes.py wrote the ids and texts.
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "support/catch.h"
#include "support/places.h"
#include "support/temporary_folder.h"
#include "support/text_tools.h"
#include "text/tokenizer/tokenizer.h"

namespace dslaunch::text {
namespace {

using TokenizerClassJson = nlohmann::json;

TEST_CASE("a blank goes before a text as the tokenizer's class says") {
    const TokenizerClassJson fixture = TokenizerClassJson::parse(
        test::content_of(test::fixture_path("tokenizers/tokenizer_classes.json")));
    std::set<std::vector<int32_t>> different;
    for (const TokenizerClassJson& row : fixture["folders"]) {
        INFO(row["tokenizer"] << " " << row["tokenizer_config"] << " " << row["config"]);
        const test::TemporaryFolder folder;
        const auto put = [&](const char* name, const TokenizerClassJson& json) {
            test::write_file(folder.path() + "/" + name, json.dump());
        };
        put("tokenizer.json", fixture["tokenizers"][row["tokenizer"].get<std::string>()]);
        put("tokenizer_config.json", row["tokenizer_config"]);
        put("config.json", row["config"]);
        const Tokenizer tokenizer = Tokenizer::of_folder(folder.path());
        for (size_t i = 0; i < fixture["texts"].size(); ++i) {
            const std::string text = fixture["texts"][i];
            INFO(text);
            const std::vector<int32_t> ids = row["ids"][i];
            CHECK(tokenizer.encode(text, {.add_special_tokens = false}) == ids);
            CHECK(tokenizer.decode(ids) == row["decoded"][i].get<std::string>());
            if (i == 0) different.insert(ids);
        }
    }
    CHECK(different.size() == 6);  // three tokenizers, each with a blank and without one
}

TEST_CASE("a folder of a tokenizer.json alone has that tokenizer") {
    const test::TemporaryFolder folder;
    const TokenizerClassJson fixture = TokenizerClassJson::parse(
        test::content_of(test::fixture_path("tokenizers/tokenizer_classes.json")));
    const std::string text = fixture["tokenizers"]["bytes-prefix"].dump();
    test::write_file(folder.path() + "/tokenizer.json", text);
    const std::vector<int32_t> expected = Tokenizer::parse(text, "t").encode("the earth");
    CHECK(Tokenizer::of_folder(folder.path()).encode("the earth") == expected);
    // Files that are not JSON name no class. If their other fields are read, they are refused.
    test::write_file(folder.path() + "/tokenizer_config.json", "{");
    test::write_file(folder.path() + "/config.json", "[1]");
    CHECK(Tokenizer::of_folder(folder.path()).encode("the earth") == expected);
}

}  // namespace
}  // namespace dslaunch::text
