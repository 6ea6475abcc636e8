#include "storage/huggingface/generation_config.h"

#include "base/error.h"
#include "support/catch.h"
#include "support/temporary_folder.h"
#include "support/text_tools.h"

namespace dslaunch::storage {
namespace {

using test::TemporaryFolder;
using test::write_file;
using Tokens = std::vector<int32_t>;

TEST_CASE("a generation_config.json is read as transformers reads it") {
    const GenerationConfig config = parse_generation_config("g", R"({"_from_model_config": true,
        "do_sample": true, "temperature": 0.6, "top_p": 0.95, "top_k": 20, "min_p": 0.05,
        "repetition_penalty": 1.05, "max_new_tokens": 512, "max_length": 4096,
        "min_new_tokens": 1, "min_length": 2, "no_repeat_ngram_size": 3, "bos_token_id": 1,
        "eos_token_id": [151645, 151643], "pad_token_id": 151643, "forced_eos_token_id": 7,
        "suppress_tokens": [4, 5], "begin_suppress_tokens": [6], "stop_strings": ["a", "b"],
        "bad_words_ids": [[1], [2, 3]], "sequence_bias": [[[1, 2], -0.5]], "num_beams": 1,
        "typical_p": 1.0, "token_healing": false, "use_cache": true, "transformers_version": "5",
        "force_words_ids": [], "guidance_scale": null})");
    CHECK(config.says_sampling());
    CHECK(config.do_sample == true);
    CHECK(config.temperature == 0.6);
    CHECK(config.top_p == 0.95);
    CHECK(config.top_k == 20);
    CHECK(config.min_p == 0.05);
    CHECK(config.repetition_penalty == 1.05);
    CHECK(config.max_new_tokens == 512);
    CHECK(config.max_length == 4096);
    CHECK(config.min_new_tokens == 1);
    CHECK(config.min_length == 2);
    CHECK(config.no_repeat_ngram_size == 3);
    CHECK(config.bos_token == 1);
    CHECK(config.eos_tokens == Tokens{151645, 151643});
    CHECK(config.forced_eos_tokens == Tokens{7});
    CHECK(config.suppress_tokens == Tokens{4, 5});
    CHECK(config.begin_suppress_tokens == Tokens{6});
    CHECK(config.stop_strings == std::vector<std::string>{"a", "b"});
    CHECK(config.bad_words == std::vector<Tokens>{{1}, {2, 3}});
    REQUIRE(config.sequence_bias.size() == 1);
    CHECK(config.sequence_bias[0] == std::pair(Tokens{1, 2}, -0.5));
    CHECK(config.not_done.empty());
    CHECK(
        parse_generation_config("g", R"({"stop_strings": "x", "eos_token_id": 2})").stop_strings ==
        std::vector<std::string>{"x"});
    CHECK_FALSE(
        parse_generation_config("g", R"({"eos_token_id": 2, "top_p": null})").says_sampling());
}

TEST_CASE("what a generation_config.json asks for and nothing here does is named") {
    const GenerationConfig config = parse_generation_config(
        "g", R"({"num_beams": 4, "typical_p": 0.9, "made_up": "x", "penalty_alpha": 0.6})");
    CHECK(config.not_done == std::vector<std::string>{"made_up = \"x\"", "num_beams = 4",
                                                      "penalty_alpha = 0.6", "typical_p = 0.9"});
}

TEST_CASE("a bad generation_config.json is refused with the file and the field") {
    const std::pair<const char*, const char*> rows[] = {
        {"[]", "object"},
        {"{", "g"},
        {R"({"temperature": "hot"})", "temperature"},
        {R"({"temperature": -1})", "temperature"},
        {R"({"top_p": 1.5})", "top_p"},
        {R"({"top_k": -1})", "top_k"},
        {R"({"do_sample": "yes"})", "do_sample"},
        {R"({"repetition_penalty": 0})", "repetition_penalty"},
        {R"({"eos_token_id": -2})", "eos_token_id"},
        {R"({"eos_token_id": [1, "x"]})", "eos_token_id[1]"},
        {R"({"bad_words_ids": [[]]})", "bad_words_ids[0]"},
        {R"({"sequence_bias": [[1]]})", "sequence_bias"},
        {R"({"stop_strings": [""]})", "stop_strings[0]"},
        {R"({"max_new_tokens": 1.5})", "max_new_tokens"},
        {R"({"max_new_tokens": 0})", "max_new_tokens"},
        {R"({"sequence_bias": [[[1], 1e39]]})", "sequence_bias[0]"},
    };
    for (const auto& [text, word] : rows) {
        INFO(text);
        CHECK_THAT(test::error_of(ExitCode::kInput,
                                  [&] { static_cast<void>(parse_generation_config("g", text)); }),
                   Catch::Contains(word));
    }
}

TEST_CASE("end tokens are generation_config.json's, else config.json's, also of its text part") {
    const TemporaryFolder folder;
    CHECK(end_tokens_of(folder.path()).empty());
    write_file(folder.path() + "/config.json", R"({"text_config": {"eos_token_id": [5, 6]}})");
    CHECK(end_tokens_of(folder.path()) == Tokens{5, 6});
    write_file(folder.path() + "/config.json", R"({"eos_token_id": 3, "bos_token_id": 4})");
    CHECK(end_tokens_of(folder.path()) == Tokens{3});
    CHECK(read_tokens_of_config(folder.path()).bos_token == 4);
    write_file(folder.path() + "/generation_config.json", R"({"eos_token_id": [7, 8]})");
    CHECK(end_tokens_of(folder.path()) == Tokens{7, 8});
}

}  // namespace
}  // namespace dslaunch::storage
