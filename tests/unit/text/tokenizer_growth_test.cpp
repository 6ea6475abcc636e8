// Tokenizers whose steps write far more than they get. They are refused, by the step's place or by
// the text that grows, and with bounded memory.
#include <nlohmann/json.hpp>

#include "support/catch.h"
#include "support/text_tools.h"
#include "text/tokenizer/tokenizer.h"

using namespace dslaunch;
using namespace dslaunch::text;
using namespace dslaunch::test;

namespace {

using TokenizerGrowthJson = nlohmann::json;

std::string with(const TokenizerGrowthJson& changes) {
    TokenizerGrowthJson json =
        TokenizerGrowthJson::parse(R"({"version": "1.0", "added_tokens": [], "normalizer": null,
        "pre_tokenizer": null, "post_processor": null, "decoder": null,
        "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2, "x": 3}, "merges": []}})");
    json.update(changes);
    return json.dump();
}

TokenizerGrowthJson replace(const std::string& from, const std::string& to) {
    return {{"type", "Replace"}, {"pattern", {{"String", from}}}, {"content", to}};
}

TokenizerGrowthJson sequence(const char* list, const TokenizerGrowthJson& step, int count) {
    TokenizerGrowthJson json = {{"type", "Sequence"}, {list, TokenizerGrowthJson::array()}};
    for (int i = 0; i < count; ++i) json[list].push_back(step);
    return json;
}

TokenizerGrowthJson byte_level() {
    return {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}};
}

// Returns the error that CALL throws.
template <typename Call>
std::string refusal_of(const Call& call) {
    return error_of(ExitCode::kInput, call);
}

}  // namespace

TEST_CASE("a step that writes a long text is refused by its place") {
    const std::string longest(1024, 'b'), longer(1025, 'b');
    const auto prepend = [](const std::string& text) {
        return TokenizerGrowthJson{{"type", "Prepend"}, {"prepend", text}};
    };
    const Tokenizer tokenizer =
        Tokenizer::parse(with({{"normalizer", replace("a", longest)}}), "t.json");
    CHECK(tokenizer.encode("aa") == std::vector<int32_t>(2048, 1));
    const TokenizerGrowthJson unigram = {
        {"type", "Unigram"},
        {"unk_id", 0},
        {"vocab", TokenizerGrowthJson::array({TokenizerGrowthJson::array({longer, -1.0})})}};
    const TokenizerGrowthJson words = {{"type", "WordPiece"},
                                       {"unk_token", "a"},
                                       {"continuing_subword_prefix", "##"},
                                       {"max_input_chars_per_word", 100},
                                       {"vocab", {{"a", 0}, {longer, 1}}}};
    const TokenizerGrowthJson marked = {{"type", "BPE"},
                                        {"vocab", {{"a", 0}}},
                                        {"merges", TokenizerGrowthJson::array()},
                                        {"end_of_word_suffix", std::string(65, 'b')}};
    const TokenizerGrowthJson many = {
        {"type", "TemplateProcessing"},
        {"single", {{{"SpecialToken", {{"id", "s"}, {"type_id", 0}}}}}},
        {"pair", TokenizerGrowthJson::array()},
        {"special_tokens",
         {{"s", {{"id", "s"}, {"ids", std::vector<int>(65)}, {"tokens", {"a"}}}}}}};
    for (const auto& [changes, place] : std::vector<std::pair<TokenizerGrowthJson, std::string>>{
             {{{"normalizer", replace("a", longer)}},
              "normalizer.content: the string has 1025 bytes"},
             {{{"normalizer", prepend(longer)}}, "normalizer.prepend: the string has 1025 bytes"},
             {{{"decoder", replace("a", longer)}}, "decoder.content: the string has 1025 bytes"},
             {{{"model", unigram}}, "model.vocab[0][0]: the string has 1025 bytes"},
             {{{"model", words}}, "model.vocab: token 1 has 1025 bytes"},
             {{{"model", marked}}, "model.end_of_word_suffix: the string has 65 bytes"},
             {{{"post_processor", many}}, "special_tokens.s.ids[64]: there are too many"}}) {
        INFO(place);
        CHECK_THAT(refusal_of([&] { (void)Tokenizer::parse(with(changes), "t.json"); }),
                   Catch::Contains(place));
    }
}

TEST_CASE("steps that double a text again and again are refused by their field") {
    const std::vector<std::pair<TokenizerGrowthJson, std::string>> cases = {
        {{{"normalizer", sequence("normalizers", replace("a", "aa"), 60)}}, "normalizer: "},
        {{{"normalizer", sequence("normalizers", {{"type", "ByteLevel"}}, 60)}}, "normalizer: "},
        {{{"pre_tokenizer", sequence("pretokenizers", byte_level(), 60)}}, "pre_tokenizer: "},
        {{{"decoder", sequence("decoders", replace("a", "aa"), 60)}}, "decoder: "},
    };
    for (const auto& [changes, field] : cases) {
        INFO(changes.dump().substr(0, 100));
        CHECK_THAT(refusal_of([&] { (void)Tokenizer::parse(with(changes), "t.json"); }),
                   Catch::Contains("t.json: " + field + "a text grows beyond"));
    }
}

TEST_CASE("what doubles a text of rare characters alone ends with an error and bounded memory") {
    const std::string rare = "\u0e01";
    const TokenizerGrowthJson model = {
        {"type", "BPE"}, {"vocab", {{rare, 0}}}, {"merges", TokenizerGrowthJson::array()}};
    const Tokenizer encoding = Tokenizer::parse(
        with({{"normalizer", sequence("normalizers", replace(rare, rare + rare), 60)},
              {"model", model}}),
        "t.json");
    CHECK_THAT(refusal_of([&] { (void)encoding.encode(rare); }),
               Catch::Contains("a text grows beyond"));
    const Tokenizer decoding = Tokenizer::parse(
        with({{"decoder", sequence("decoders", replace(rare, rare + rare), 60)}, {"model", model}}),
        "t.json");
    const std::vector<int32_t> ids = {0};
    CHECK_THAT(refusal_of([&] { (void)decoding.decode(ids, false); }),
               Catch::Contains("a text grows beyond"));
    const Tokenizer longer =
        Tokenizer::parse(with({{"normalizer", replace("a", std::string(1000, 'b'))}}), "t.json");
    CHECK_THAT(refusal_of([&] { (void)longer.encode(std::string(100'000, 'a')); }),
               Catch::Contains("a text grows beyond"));
}

TEST_CASE("parts of a text grow within one bound for all of them") {
    // 2,000 parts between added tokens. A normalizer makes 64 KiB of each part.
    TokenizerGrowthJson changes = {{"normalizer", sequence("normalizers", replace("a", "aa"), 15)}};
    changes["added_tokens"] = {{{"id", 3},
                                {"content", "x"},
                                {"single_word", false},
                                {"lstrip", false},
                                {"rstrip", false},
                                {"normalized", false},
                                {"special", false}}};
    const Tokenizer tokenizer = Tokenizer::parse(with(changes), "t.json");
    CHECK(tokenizer.encode("a").size() == 1 << 15);
    std::string text;
    for (int i = 0; i < 2000; ++i) text += "ax";
    CHECK_THAT(refusal_of([&] { (void)tokenizer.encode(text); }),
               Catch::Contains("a text grows beyond"));
}

TEST_CASE("the largest growth of honest steps has room") {
    // U+FDFA is 18 characters in NFKD. Two bytes write each of 15 of these, and each of those bytes
    // becomes a character of two bytes.
    TokenizerGrowthJson vocabulary = TokenizerGrowthJson::object();
    for (int i = 0; i < 256; ++i) {
        const char32_t point = i < 128 ? U'\u0100' + i : U'\u0080' + i;
        std::string text = {static_cast<char>(0xC0 | point >> 6),
                            static_cast<char>(0x80 | (point & 0x3F))};
        vocabulary[text] = i;
    }
    vocabulary["<unk>"] = 256;
    const TokenizerGrowthJson model = {{"type", "BPE"},
                                       {"unk_token", "<unk>"},
                                       {"vocab", vocabulary},
                                       {"merges", TokenizerGrowthJson::array()}};
    const Tokenizer tokenizer = Tokenizer::parse(with({{"normalizer", {{"type", "NFKD"}}},
                                                       {"pre_tokenizer", byte_level()},
                                                       {"model", model}}),
                                                 "t.json");
    std::string text;
    for (int i = 0; i < 50'000; ++i) text += "\uFDFA";
    CHECK(tokenizer.encode(text).size() == 50'000 * (15 * 2 + 3));
}

TEST_CASE("blanks around tokens that take them are looked at once") {
    TokenizerGrowthJson token = {{"id", 4},         {"content", "\t"}, {"single_word", false},
                                 {"lstrip", true},  {"rstrip", true},  {"normalized", false},
                                 {"special", false}};
    std::string blanks, words;
    for (int i = 0; i < 200'000; ++i) blanks += "\t ";
    for (int i = 0; i < 100'000; ++i) words += "a  \t \t  b";
    for (const bool right : {true, false}) {
        token["rstrip"] = right;
        const Tokenizer tokenizer = Tokenizer::parse(
            with({{"added_tokens", TokenizerGrowthJson::array({token})}}), "t.json");
        // Either the first token takes what follows, or each token takes the blank before it.
        CHECK(tokenizer.encode(blanks) == std::vector<int32_t>(right ? 1 : 200'000, 4));
        const std::vector<int32_t> ids = tokenizer.encode(words);
        REQUIRE(ids.size() == 100'000 * (right ? 3 : 4));
        CHECK(std::vector(ids.begin(), ids.begin() + 3) ==
              (right ? std::vector<int32_t>{0, 4, 1} : std::vector<int32_t>{0, 4, 4}));
    }
}
