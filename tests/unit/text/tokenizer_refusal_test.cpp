// Files that are wrong, hostile or beyond this version end with an error that names the place.
#include <fstream>
#include <nlohmann/json.hpp>

#include "support/catch.h"
#include "support/temporary_folder.h"
#include "support/text_tools.h"
#include "text/tokenizer/tokenizer.h"

using namespace dslaunch;
using namespace dslaunch::text;
using namespace dslaunch::test;

namespace {

using TokenizerRefusalJson = nlohmann::json;

std::string tokenizer_refusal_of(const std::string& text) {
    return error_of(ExitCode::kInput, [&] { (void)Tokenizer::parse(text, "t.json"); });
}

// Returns a small tokenizer in which the members of CHANGES replace its own.
std::string tokenizer_refusal_with(const std::string& changes) {
    TokenizerRefusalJson json =
        TokenizerRefusalJson::parse(R"({"version": "1.0", "added_tokens": [], "normalizer": null,
        "pre_tokenizer": null, "post_processor": null, "decoder": null,
        "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"]}})");
    json.update(TokenizerRefusalJson::parse(changes));
    return json.dump();
}

std::string with_model(const std::string& changes) {
    TokenizerRefusalJson model = TokenizerRefusalJson::parse(
        R"({"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"]})");
    model.update(TokenizerRefusalJson::parse(changes));
    return tokenizer_refusal_with(TokenizerRefusalJson{{"model", model}}.dump());
}

std::string with_token(const std::string& changes) {
    TokenizerRefusalJson token = TokenizerRefusalJson::parse(
        R"({"id": 3, "content": "<s>", "single_word": false, "lstrip": false,
        "rstrip": false, "normalized": false, "special": true})");
    token.update(TokenizerRefusalJson::parse(changes));
    return tokenizer_refusal_with(
        TokenizerRefusalJson{{"added_tokens", TokenizerRefusalJson::array({token})}}.dump());
}

std::string with_split(const std::string& expression) {
    return tokenizer_refusal_with(TokenizerRefusalJson{
        {"pre_tokenizer",
         {{"type", "Split"},
          {"pattern", {{"Regex", expression}}},
          {"behavior", "Isolated"},
          {"invert", false}}}}.dump());
}

std::string nested(const std::string& field, const std::string& list, int depth) {
    std::string text = R"({"type": "Lowercase"})";
    for (int i = 0; i < depth; ++i)
        text = R"({"type": "Sequence", ")" + list + R"(": [)" + text + "]}";
    return tokenizer_refusal_with("{\"" + field + "\": " + text + "}");
}

struct Row {
    std::string text;
    std::string message;
};

}  // namespace

TEST_CASE("a small tokenizer.json is read, so that refusals below have one cause") {
    CHECK(tokenizer_refusal_of(tokenizer_refusal_with("{}")) == "accepted");
    CHECK(tokenizer_refusal_of(with_model("{}")) == "accepted");
    CHECK(tokenizer_refusal_of(with_token("{}")) == "accepted");
    CHECK(tokenizer_refusal_of(with_split("a+")) == "accepted");
}

TEST_CASE("documents that are no tokenizer are refused") {
    const Row table[] = {
        {"", "is empty"},
        {"{", "not valid JSON"},
        {"[]", "an object is expected"},
        {"{}", "the field `model` is missing"},
        {"{\"model\": {\"vocab\": {\"a\": 0, \"a\": 1}}}", "the key `a` twice"},
        {tokenizer_refusal_with(R"({"version": "2.0"})"), "version: only version 1.0 is supported"},
        {tokenizer_refusal_with(R"({"surprise": 1})"),
         "this version does not support the field `surprise`"},
        {std::string(100'000, '['), "nested too deep"},
        {nested("normalizer", "normalizers", 40), "too many steps"},
        {nested("pre_tokenizer", "pretokenizers", 40), "too many steps"},
        {nested("decoder", "decoders", 40), "too many steps"},
        {nested("post_processor", "processors", 40), "too many steps"},
    };
    for (const Row& row : table) {
        INFO(row.text.substr(0, 200));
        CHECK_THAT(tokenizer_refusal_of(row.text), Catch::Contains(row.message));
    }
    CHECK_THAT(error_of(ExitCode::kInput, [] { (void)Tokenizer::load("/proc/no/such/file"); }),
               Catch::Contains("/proc/no/such/file: cannot be opened"));
}

TEST_CASE("a folder without tokenizer.json says what to do, by what else is in it") {
    const test::TemporaryFolder folder;
    const auto refusal = [&] {
        return error_of(ExitCode::kInput, [&] { (void)Tokenizer::of_folder(folder.path()); });
    };
    CHECK_THAT(refusal(), Catch::Contains("copy it into the folder"));
    std::ofstream(folder.path() + "/tokenizer.model") << "x";
    CHECK_THAT(refusal(), Catch::Contains("AutoTokenizer.from_pretrained"));
}

TEST_CASE("what is not known to this version is refused by its name and place") {
    const Row table[] = {
        {with_model(R"({"type": "Neural"})"), "model: the model `Neural`"},
        {tokenizer_refusal_with(R"({"normalizer": {"type": "Odd"}})"),
         "normalizer: the normalizer `Odd`"},
        {tokenizer_refusal_with(
             R"({"normalizer": {"type": "Sequence", "normalizers": [{"type": "Odd"}]}})"),
         "normalizer.normalizers[0]: the normalizer `Odd`"},
        {tokenizer_refusal_with(R"({"normalizer": {"type": "NFC", "form": 1}})"),
         "the field `form`"},
        {tokenizer_refusal_with(R"({"pre_tokenizer": {"type": "UnicodeScripts"}})"),
         "`UnicodeScripts`"},
        {tokenizer_refusal_with(R"({"decoder": {"type": "CTC", "pad_token": "<pad>"}})"),
         "the decoder `CTC`"},
        {tokenizer_refusal_with(R"({"post_processor": {"type": "Odd"}})"),
         "the post-processor `Odd`"},
        {with_model(R"({"dropout": 0.1})"), "model.dropout: dropout would make tokens random"},
        {with_split(R"([[:alpha:]])"), "a class such as [:alpha:]"},
        {with_split(R"(\p{Klingon})"), "\\p{Klingon} is not a supported property"},
    };
    for (const Row& row : table) {
        INFO(row.text);
        CHECK_THAT(tokenizer_refusal_of(row.text), Catch::Contains(row.message));
    }
}

TEST_CASE("wrong numbers, texts and patterns are refused") {
    const std::string ones = R"({"type": "Unigram", "vocab": [["a", -1.5]], "unk_id": )";
    const Row table[] = {
        {with_model(R"({"vocab": {"a": -1}})"), "model.vocab.a: -1 is not a valid token number"},
        {with_model(R"({"vocab": {"a": 99999999999}})"), "99999999999 is not a valid token number"},
        {with_model(R"({"vocab": {"a": 1e99}})"), "an integer is expected"},
        {with_model(R"({"vocab": {"a": 0, "b": 0}})"), "two tokens have the number 0"},
        {with_model(R"({"vocab": []})"), "an object is expected"},
        {with_model(R"({"merges": ["a c"]})"), "token 'c' is not in the vocabulary"},
        {with_model(R"({"merges": ["b a"]})"), "token 'ba' is not in the vocabulary"},
        {with_model(R"({"merges": ["a b c"]})"), "one space between them"},
        {with_model(R"({"merges": [["a"]]})"), "a merge of two tokens"},
        {with_model(R"({"merges": [["a", "b"], "a b"]})"), "a list is expected"},
        {with_model(R"({"continuing_subword_prefix": "###"})"), "shorter than"},
        {tokenizer_refusal_with(R"({"model": )" + ones + "1}}"),
         "model.unk_id: it is not a token number of this vocabulary"},
        {tokenizer_refusal_with(R"({"model": )" + ones + "-1}}"), "model.unk_id"},
        {tokenizer_refusal_with(R"({"model": {"type": "Unigram", "vocab": [["a"]]}})"),
         "a token and its score"},
        {with_token(R"({"id": 7})"),
         "has the number 7 here, but the Python package would give it 3"},
        {with_token(R"({"content": ")" + std::string(2000, 'x') + "\"}"), "but at most"},
        {with_token(R"({"special": "yes"})"), "true or false is expected"},
        {tokenizer_refusal_with(R"({"pre_tokenizer": {"type": "Metaspace", "replacement": "__"}})"),
         "expected one character"},
        {tokenizer_refusal_with(R"({"pre_tokenizer": {"type": "FixedLength", "length": 0}})"),
         "must be at least 1"},
        {tokenizer_refusal_with(
             R"({"decoder": {"type": "Strip", "content": " ", "start": -1, "stop": 0}})"),
         "expected a count from 0 to 1024"},
        {tokenizer_refusal_with(
             R"({"post_processor": {"type": "BertProcessing", "sep": ["a"], "cls": ["b", 1]}})"),
         "a token and its number"},
        {with_split(""), "an empty pattern"},
        {with_split("(a"), "invalid pattern"},
        {with_split("a{2,1}x{99999999}"), "invalid pattern"},
        {with_split(R"(\p)"), "expected a name in braces after \\p"},
        {with_split(std::string(20'000, 'a')), "but at most"},
        {with_split(std::string(8'000, '(') + "a" + std::string(8'000, ')')), "invalid pattern"},
    };
    for (const Row& row : table) {
        INFO(row.text.substr(0, 300));
        CHECK_THAT(tokenizer_refusal_of(row.text), Catch::Contains(row.message));
    }
}

TEST_CASE("a character map that is damaged is refused, or does nothing wild") {
    const auto map = [](const std::string& base64) {
        return tokenizer_refusal_with(
            R"({"normalizer": {"type": "Precompiled", "precompiled_charsmap": ")" + base64 +
            "\"}}");
    };
    CHECK_THAT(tokenizer_refusal_of(map("!!!!")), Catch::Contains("it is not base64"));
    CHECK_THAT(tokenizer_refusal_of(map("AAA")), Catch::Contains("it is not base64"));
    CHECK_THAT(tokenizer_refusal_of(map("")), Catch::Contains("length of its trie does not fit"));
    CHECK_THAT(tokenizer_refusal_of(map("/////wAAAAA=")),
               Catch::Contains("length of its trie does not fit"));
    CHECK_THAT(tokenizer_refusal_of(map("BAAAAAAAAAD//w==")), Catch::Contains("are not UTF-8"));
    // One unit that points far away: no text is replaced.
    const Tokenizer wild = Tokenizer::parse(map("BAAAAP////8A"), "t.json");
    CHECK(wild.encode("ab") == std::vector<int32_t>{2});
}

TEST_CASE("a pattern that would take for ever ends with an error") {
    for (const std::string expression : {R"((a|aa)+$x)", R"((?:a|aa)+(?<![a-z]))"}) {
        INFO(expression);
        const Tokenizer tokenizer = Tokenizer::parse(with_split(expression), "t.json");
        CHECK_THAT(
            error_of(ExitCode::kInput, [&] { (void)tokenizer.encode(std::string(5'000, 'a')); }),
            Catch::Contains("needs too much time"));
    }
}

TEST_CASE("text that the model has no token for is an error where there is no unknown token") {
    const Tokenizer unigram = Tokenizer::parse(
        tokenizer_refusal_with(R"({"model": {"type": "Unigram", "vocab": [["a", -1.5]]}})"),
        "t.json");
    CHECK(unigram.encode("aa").size() == 2);
    CHECK_THAT(error_of(ExitCode::kInput, [&] { (void)unigram.encode("ab"); }),
               Catch::Contains("no token for 'b'"));
    const Tokenizer words = Tokenizer::parse(
        tokenizer_refusal_with(
            R"({"model": {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "?"}})"),
        "t.json");
    CHECK_THAT(error_of(ExitCode::kInput, [&] { (void)words.encode("b"); }),
               Catch::Contains("unk_token '?' is not in its vocabulary"));
}
