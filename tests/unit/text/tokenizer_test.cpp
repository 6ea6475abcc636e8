// Tokenizers, compared with the Python package `tokenizers`:
// tests/fixtures/tokenizers/make_tokenizers.py wrote the ids and texts.
#include "text/tokenizer/tokenizer.h"

#include <nlohmann/json.hpp>
#include <random>
#include <thread>

#include "base/text.h"
#include "base/text/fnv1a.h"
#include "support/catch.h"
#include "support/places.h"
#include "support/text_tools.h"
#include "text/subword/byte_alphabet.h"
#include "text/tokenizer/token_stream.h"
#include "text/unicode/code_points.h"

using namespace dslaunch;
using namespace dslaunch::text;
using namespace dslaunch::test;

namespace {

using TokenizerJson = nlohmann::json;

const TokenizerJson& fixture() {
    static const TokenizerJson json =
        TokenizerJson::parse(content_of(fixture_path("tokenizers/tokenizers.json")));
    return json;
}

Tokenizer tokenizer_of(TokenizerJson sections, const TokenizerJson& model) {
    sections["model"] = model;
    return Tokenizer::parse(sections.dump(), "fixture");
}

Tokenizer tokenizer_of(const TokenizerJson& row) {
    const std::string shared = row["tokenizer"]["model"];
    return tokenizer_of(row["tokenizer"], fixture()["models"][shared]);
}

Tokenizer tokenizer_named(const std::string& name) {
    for (const TokenizerJson& row : fixture()["rows"])
        if (row["name"] == name) return tokenizer_of(row);
    FAIL("no row " << name);
    return tokenizer_of(TokenizerJson::object(), TokenizerJson::object());
}

// Returns the text that a stream gives for IDS, one after the other.
std::string streamed(const Tokenizer& tokenizer, const std::vector<int32_t>& ids, bool skips) {
    TokenStream stream(tokenizer, skips);
    std::string all;
    for (const int32_t id : ids) {
        const std::string part = stream.append(id);
        CHECK(valid_utf8_prefix(part) == part.size());
        all += part;
    }
    return all + stream.finish();
}

// Returns a model whose tokens are bytes, in the order of their characters. The id of a piece's
// last byte is 256 higher.
TokenizerJson points_model() {
    std::vector<std::string> alphabet;
    for (int byte = 0; byte < 256; ++byte) {
        alphabet.emplace_back();
        append_utf8(alphabet.back(), character_of_byte(static_cast<unsigned char>(byte)));
    }
    std::sort(alphabet.begin(), alphabet.end());
    TokenizerJson vocab = TokenizerJson::object();
    for (size_t i = 0; i < alphabet.size(); ++i) {
        vocab[alphabet[i]] = i;
        vocab[alphabet[i] + "</w>"] = 256 + i;
    }
    return {{"type", "BPE"},
            {"end_of_word_suffix", "</w>"},
            {"vocab", vocab},
            {"merges", TokenizerJson::array()}};
}

uint64_t hash_of_points(const Tokenizer& tokenizer) {
    uint64_t hash = kFnv1aBegin;
    std::string text;
    int points = 0;
    const auto end_text = [&] {
        for (const int32_t id : tokenizer.encode(text)) {
            const char bytes[] = {static_cast<char>(id), static_cast<char>(id >> 8),
                                  static_cast<char>(id >> 16), static_cast<char>(id >> 24)};
            hash = fnv1a(hash, {bytes, sizeof(bytes)});
        }
        text.clear();
        points = 0;
    };
    for (char32_t point = 0; point < kCodePointLimit; ++point) {
        if (point >= 0xD800 && point < 0xE000) continue;
        append_utf8(text, point);
        if (++points == 4096) end_text();
    }
    end_text();
    return hash;
}

}  // namespace

TEST_CASE("every style of tokenizer encodes and decodes as the Python package does") {
    for (const TokenizerJson& row : fixture()["rows"]) {
        const Tokenizer tokenizer = tokenizer_of(row);
        for (size_t i = 0; i < fixture()["texts"].size(); ++i) {
            const std::string text = fixture()["texts"][i];
            const TokenizerJson& wanted = row["cases"][i];
            INFO(row["name"] << ": " << text);
            const std::vector<int32_t> ids = wanted["ids"];
            const std::vector<int32_t> plain = wanted.value("plain", ids);
            const std::string decoded = wanted.value("decoded", text);
            const std::string visible = wanted.value("visible", decoded);
            CHECK(tokenizer.encode(text) == ids);
            CHECK(tokenizer.encode(text) == ids);  // from the cache
            CHECK(tokenizer.encode(text, {.add_special_tokens = false}) == plain);
            CHECK(tokenizer.decode(ids, false) == decoded);
            CHECK(tokenizer.decode(ids, true) == visible);
            CHECK(streamed(tokenizer, ids, false) == decoded);
            CHECK(streamed(tokenizer, ids, true) == visible);
        }
    }
}

TEST_CASE("all code points are cut and normalized as the Python package does") {
    for (const TokenizerJson& row : fixture()["points"]) {
        INFO(row["name"]);
        const Tokenizer tokenizer = tokenizer_of(row["tokenizer"], points_model());
        CHECK(fmt::format("{:016x}", hash_of_points(tokenizer)) == row["hash"]);
    }
}

TEST_CASE("tokens are found by text and by number, and know whether they are special") {
    const Tokenizer tokenizer = tokenizer_named("added");
    CHECK(tokenizer.ids_end() == 337);
    CHECK(tokenizer.id_of("<s>") == 330);
    CHECK(tokenizer.token_of(330) == "<s>");
    CHECK(tokenizer.is_special(330));
    CHECK_FALSE(tokenizer.is_special(334));
    CHECK_FALSE(tokenizer.is_special(-1));
    CHECK_FALSE(tokenizer.is_special(337));
    CHECK_FALSE(tokenizer.id_of("no such token"));
    CHECK_FALSE(tokenizer.token_of(337));
    CHECK(tokenizer.token_of(336) == "earth");  // the form in normalized text
    CHECK(tokenizer.decode(std::vector<int32_t>{330, 337, 1 << 30}, false) == "<s>");
    CHECK(mentions(
        error_of(ExitCode::kInput, [&] { (void)tokenizer.decode(std::vector<int32_t>{-100}); }),
        "-100 is not a valid token number"));
}

TEST_CASE("bytes that are no UTF-8 are the replacement character, one for each maximal part") {
    const Tokenizer tokenizer = tokenizer_named("gpt2");
    const std::pair<std::string, std::string> table[] = {
        {"a\xFF", "a\uFFFD"},
        {"\xE4\xBD", "\uFFFD"},
        {"\xE4\xBDz\xE4", "\uFFFDz\uFFFD"},
        {"\xC0\x80", "\uFFFD\uFFFD"},
        {"\xED\xA0\x80", "\uFFFD\uFFFD\uFFFD"},
        {"\xF4\x90\x80\x80", "\uFFFD\uFFFD\uFFFD\uFFFD"},
        {"\xF0\x9F\x92x", "\uFFFDx"}};
    for (const auto& [bytes, text] : table)
        CHECK(tokenizer.encode(bytes) == tokenizer.encode(text));
}

TEST_CASE("a stream of any tokens gives whole characters, and together what decode gives") {
    std::mt19937 random(5);
    for (const TokenizerJson& row : fixture()["rows"]) {
        const Tokenizer tokenizer = tokenizer_of(row);
        INFO(row["name"]);
        for (int turn = 0; turn < 20; ++turn) {
            std::vector<int32_t> ids(random() % 40);
            for (int32_t& id : ids)
                id = static_cast<int32_t>(random() % static_cast<uint32_t>(tokenizer.ids_end()));
            const bool skips = turn % 2 == 0;
            CHECK(streamed(tokenizer, ids, skips) == tokenizer.decode(ids, skips));
        }
    }
}

TEST_CASE("a stream holds back bytes until their character is whole, and no longer") {
    const Tokenizer tokenizer = tokenizer_named("gpt2");
    const std::vector<int32_t> ids = tokenizer.encode("\U0001F469");
    REQUIRE(ids.size() == 4);
    TokenStream stream(tokenizer);
    CHECK(stream.append(ids[0]).empty());
    CHECK(stream.append(ids[1]).empty());
    CHECK(stream.append(ids[2]).empty());
    CHECK(stream.append(ids[3]) == "\U0001F469");
    CHECK(stream.append(ids[0]).empty());
    CHECK(stream.append(*tokenizer.id_of("a")) == "\uFFFDa");
    CHECK(stream.append(ids[0]).empty());
    CHECK(stream.finish() == "\uFFFD");
}

TEST_CASE("several threads share a tokenizer") {
    const Tokenizer tokenizer = tokenizer_named("llama2");
    std::vector<std::vector<int32_t>> wanted;
    for (const TokenizerJson& text : fixture()["texts"])
        wanted.push_back(tokenizer.encode(text.get<std::string>()));
    std::vector<int> wrong(4);
    {
        std::vector<std::jthread> threads;
        for (int& count : wrong)
            threads.emplace_back([&] {
                for (int turn = 0; turn < 50; ++turn)
                    for (size_t i = 0; i < wanted.size(); ++i)
                        count +=
                            tokenizer.encode(fixture()["texts"][i].get_ref<const std::string&>()) !=
                            wanted[i];
            });
    }
    CHECK(wrong == std::vector<int>(4));
}

TEST_CASE("a long piece takes n log n steps, and gives what its short parts give") {
    const Tokenizer tokenizer = tokenizer_named("gpt2");
    const std::vector<int32_t> one = tokenizer.encode("unheardof");
    std::string text;
    for (int i = 0; i < 50'000; ++i) text += "the";
    const std::vector<int32_t> many = tokenizer.encode(text);
    CHECK(tokenizer.decode(many) == text);
    CHECK(tokenizer.encode(std::string(1 << 20, ' ')).size() > 1000);
    CHECK(tokenizer.decode(one) == "unheardof");
}
