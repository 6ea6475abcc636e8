// The tokenizers of GGUF files: each is the one that the folder itself uses, or is refused.
#include <algorithm>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "storage/gguf/gguf_file.h"
#include "storage/gguf_model/gguf_model_reader.h"
#include "support/temporary_folder.h"
#include "text/tokenizer/tokenizer.h"
#include "unit/storage/gguf/gguf_folders.h"

using namespace dslaunch;
using namespace dslaunch::storage;
using namespace dslaunch::test;

namespace {

// A folder with a tokenizer, and the folder that its GGUF file gives.
class TwoFolders {
  public:
    TwoFolders(const Json& tokenizer, const Json& tokenizer_config,
               const Json& fields = Json::object()) {
        write_folder(from, config_of("LlamaForCausalLM", fields));
        write_file(from + "/tokenizer.json", tokenizer.dump());
        write_file(from + "/tokenizer_config.json", tokenizer_config.dump());
    }

    // Writes the file and the second folder.
    void convert() const {
        static_cast<void>(
            write_gguf(storage::open_model_folder(from), file, plainly(GgufFileType::kQ8_0)));
        static_cast<void>(import_gguf(file, to, {DType::kBF16, {}}));
    }

    void check_same(const std::vector<std::string>& texts) const {
        convert();
        const text::Tokenizer before = text::Tokenizer::of_folder(from);
        const text::Tokenizer after = text::Tokenizer::of_folder(to);
        for (const std::string& one : texts) {
            INFO(one);
            CHECK(after.encode(one) == before.encode(one));
            CHECK(after.decode(after.encode(one)) == before.decode(before.encode(one)));
        }
    }

    [[nodiscard]] std::string refusal() const { return refusal_of(from, file); }

  private:
    TemporaryFolder place_;

  public:
    const std::string from = place_.path() + "/from", to = place_.path() + "/to";
    const std::string file = place_.path() + "/model.gguf";
};

Json added(int64_t id, const std::string& text, bool is_special) {
    return {{"id", id},        {"content", text},     {"single_word", false}, {"lstrip", false},
            {"rstrip", false}, {"normalized", false}, {"special", is_special}};
}

// The tokenizer of bytes, without a token in front of texts.
const Json kPlainBytes = [] {
    Json tokenizer = kByteTokenizer;
    tokenizer["post_processor"] = nullptr;
    return tokenizer;
}();

// The tokenizer of characters, with Metaspace in place of its normalizer.
Json with_metaspace(const Json& fields) {
    Json tokenizer = kCharacterTokenizer;
    tokenizer["normalizer"] = nullptr;
    tokenizer["pre_tokenizer"] = {{"type", "Metaspace"}, {"replacement", "▁"}};
    tokenizer["pre_tokenizer"].update(fields);
    return tokenizer;
}

}  // namespace

TEST_CASE("tokenizers give the same tokens after they were in a GGUF file") {
    const std::pair<const Json*, std::vector<std::string>> rows[] = {
        {&kByteTokenizer, {"ab ab 12", "<|end|>ab", " ab", "abc"}},
        {&kCharacterTokenizer, {"ab", "abb ab", "a\nb", "<s>ab", "bb"}},
    };
    for (const auto& [tokenizer, texts] : rows) {
        const TemporaryFolder place;
        const std::string from = place.path() + "/from", to = place.path() + "/to";
        write_folder(from, config_of("LlamaForCausalLM", Json::object()));
        write_file(from + "/tokenizer.json", tokenizer->dump());
        write_file(from + "/tokenizer_config.json",
                   R"({"bos_token": "<|end|>", "eos_token": {"content": "<|end|>"},
                       "chat_template": "{{ messages }}"})");
        const std::string file = place.path() + "/model.gguf";
        static_cast<void>(write_gguf(open_model_folder(from), file, plainly(GgufFileType::kQ8_0)));
        static_cast<void>(import_gguf(file, to, {DType::kBF16, {}}));
        const text::Tokenizer before = text::Tokenizer::of_folder(from);
        const text::Tokenizer after = text::Tokenizer::of_folder(to);
        for (const std::string& one : texts) {
            INFO(one);
            CHECK(after.encode(one) == before.encode(one));
            CHECK(after.decode(after.encode(one)) == before.decode(before.encode(one)));
        }
        const Json config = Json::parse(content_of(to + "/tokenizer_config.json"));
        CHECK(config["chat_template"] == "{{ messages }}");
        CHECK(Json::parse(content_of(to + "/config.json"))["torch_dtype"] == "bfloat16");
    }
}

TEST_CASE("runs of blanks that are tokens of their own are found in texts") {
    Json tokenizer = kCharacterTokenizer;
    tokenizer["normalizer"]["normalizers"].erase(0);
    tokenizer["decoder"]["decoders"].erase(3);
    tokenizer["model"]["vocab"]["▁▁"] = 10;
    Json& merges = tokenizer["model"]["merges"];
    merges.insert(merges.begin(), Json{"▁", "▁"});
    tokenizer["added_tokens"].push_back(added(10, "▁▁", false));
    const TwoFolders folders(tokenizer, Json::object());
    folders.check_same({"a  b", "a b", "ab  ab", "  "});
    const GgufFile file(folders.file);
    CHECK(file.metadata().texts("tokenizer.ggml.tokens")[10] == "  ");
    CHECK(file.metadata().integers("tokenizer.ggml.token_type")[10] == 4);
}

TEST_CASE("a GGUF file has the tokenizer that the folder's class makes of tokenizer.json") {
    const std::vector<std::string> texts{"ab", "abb ab", "<s>ab", "bb"};
    // A Llama class puts a blank in front of texts, but not in a family that takes the file alone.
    Json bare = kCharacterTokenizer;
    bare["normalizer"]["normalizers"].erase(0);
    bare["decoder"]["decoders"].erase(3);
    const Json llama = {{"tokenizer_class", "LlamaTokenizer"}};
    TwoFolders(bare, llama).check_same({"ab", "abb ab", "bb"});
    TwoFolders(bare, llama, {{"model_type", "mistral"}}).check_same(texts);
    TwoFolders(with_metaspace({{"add_prefix_space", false}}), Json::object())
        .check_same({"ab", "abb ab", "bb"});
    // GPT-2's class decides about the blank, whatever tokenizer.json says.
    Json bytes = kPlainBytes;
    bytes["pre_tokenizer"]["pretokenizers"][1]["add_prefix_space"] = true;
    const Json gpt2 = {{"tokenizer_class", "GPT2Tokenizer"}, {"add_prefix_space", false}};
    TwoFolders(bytes, gpt2).check_same({"ab ab", "12"});
    const Json gpt2_blank = {{"tokenizer_class", "GPT2Tokenizer"}, {"add_prefix_space", true}};
    CHECK(mentions(TwoFolders(kPlainBytes, gpt2_blank).refusal(), "`add_prefix_space`"));
    // A token that is special only by tokenizer_config.json.
    const TwoFolders named(kPlainBytes, {{"eos_token", "c"}});
    named.check_same({"abc", "c"});
    CHECK(GgufFile(named.file).metadata().integers("tokenizer.ggml.token_type")[8] == 3);
    CHECK(mentions(TwoFolders(with_metaspace({{"replacement", "_"}}), Json::object()).refusal(),
                   "in place of blanks"));
    Json crossing = with_metaspace({{"split", true}});
    crossing["model"]["vocab"]["a▁"] = 10;
    crossing["model"]["merges"].push_back({"a", "▁"});
    CHECK(mentions(TwoFolders(crossing, Json::object()).refusal(), "would use the token `a▁`"));
}

TEST_CASE("tokens without a row in the embedding are left out of a GGUF file") {
    Json tokenizer = kCharacterTokenizer;
    tokenizer["added_tokens"].push_back(added(10, "<image>", true));
    const Json rows = {{"vocab_size", 10}};
    const TwoFolders folders(tokenizer, Json::object(), rows);
    folders.check_same({"ab", "abb ab"});
    CHECK(GgufFile(folders.file).metadata().texts("tokenizer.ggml.tokens").size() == 10);
    CHECK(
        mentions(TwoFolders(tokenizer, {{"eos_token", "<image>"}}, rows).refusal(), "has no row"));
    Json ordinary = kCharacterTokenizer;
    ordinary["model"]["vocab"]["bbb"] = 10;
    CHECK(mentions(TwoFolders(ordinary, Json::object(), rows).refusal(), "has the number 10"));
}

TEST_CASE("merges that SentencePiece does not have are refused") {
    Json tokenizer = kCharacterTokenizer;
    Json& merges = tokenizer["model"]["merges"];
    const Json whole = merges;
    merges.erase(3);  // a and bb make abb too
    CHECK(mentions(TwoFolders(tokenizer, Json::object()).refusal(), "leave out `a` and `bb`"));
    merges = whole;
    std::swap(merges[0], merges[3]);  // a bb first, ab b last
    CHECK(mentions(TwoFolders(tokenizer, Json::object()).refusal(), "not next to each other"));
    merges = whole;
    CHECK(TwoFolders(tokenizer, Json::object()).refusal() == "accepted");
}

TEST_CASE("`ignore_merges` may differ from llama.cpp's only if merges make every token") {
    // llama.cpp has GPT-4o's pattern only with merges.
    const std::string kPattern =
        R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
        R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
        R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)"
        R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}|)"
        R"( ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
    Json tokenizer = kPlainBytes;
    Json& steps = tokenizer["pre_tokenizer"]["pretokenizers"];
    steps[0] = {{"type", "Split"},
                {"pattern", {{"Regex", kPattern}}},
                {"behavior", "Isolated"},
                {"invert", false}};
    steps[1]["use_regex"] = false;
    tokenizer["model"]["ignore_merges"] = true;
    TwoFolders(tokenizer, Json::object()).check_same({"ab ab", "abc"});
    tokenizer["model"]["vocab"]["bc"] = 9;
    CHECK(
        mentions(TwoFolders(tokenizer, Json::object()).refusal(), "no merges make the token `bc`"));
    tokenizer["model"]["ignore_merges"] = false;
    CHECK(TwoFolders(tokenizer, Json::object()).refusal() == "accepted");
}

TEST_CASE("tokenizers without tokenizer.json, with other steps or a token twice are refused") {
    const TwoFolders folders(kPlainBytes, Json::object());
    std::filesystem::remove(folders.from + "/tokenizer.json");
    CHECK(mentions(folders.refusal(), "has tokenizer_config.json, but no tokenizer.json"));
    write_file(folders.from + "/tokenizer.model", "x");
    CHECK(mentions(folders.refusal(), "has tokenizer.model, but no tokenizer.json"));
    Json bert = kPlainBytes;
    bert["post_processor"] = {{"type", "BertProcessing"}, {"sep", {"a", 1}}, {"cls", {"b", 2}}};
    CHECK(mentions(TwoFolders(bert, Json::object()).refusal(), "post-processor `BertProcessing`"));
    Json twice = kPlainBytes;
    twice["model"]["vocab"]["[PAD20]"] = 9;
    CHECK(mentions(TwoFolders(twice, Json::object()).refusal(), "the token `[PAD20]` twice"));
}

TEST_CASE("a GGUF file's texts end where llama.cpp ends them") {
    // A special token with a usual text ends texts, though the file names another end only.
    Json tokenizer = kPlainBytes;
    tokenizer["model"]["vocab"]["<|eot_id|>"] = 9;
    tokenizer["added_tokens"].push_back(added(9, "<|eot_id|>", true));
    const TwoFolders folders(tokenizer, {{"eos_token", "<|end|>"}});
    folders.convert();
    const auto ends_in = [](const std::string& folder) {
        return Json::parse(content_of(folder + "/generation_config.json"))
            .value("eos_token_id", Json::array());
    };
    CHECK(ends_in(folders.to) == Json{0, 9});
    // SentencePiece's usual numbers.
    Json usual = kCharacterTokenizer;
    usual["model"]["vocab"].erase("<0x0A>");
    usual["model"]["vocab"]["</s>"] = 2;
    usual["added_tokens"].push_back(added(2, "</s>", true));
    const TwoFolders pieces(usual, Json::object());
    pieces.convert();
    CHECK(ends_in(pieces.to) == Json{2});
    // All ends of a folder are in the file.
    Json three = kPlainBytes;
    write_file(folders.from + "/generation_config.json", R"({"eos_token_id": [0, 7, 8]})");
    write_file(folders.from + "/tokenizer.json", three.dump());
    folders.convert();
    CHECK(ends_in(folders.to) == Json{0, 7, 8});
}
