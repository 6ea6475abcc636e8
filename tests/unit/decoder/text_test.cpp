#include <nlohmann/json.hpp>

#include "decoder/codec/text_codec.h"
#include "decoder/codec/written_text.h"
#include "support/catch.h"
#include "support/places.h"
#include "support/text_tools.h"

namespace dslaunch::decoder {
namespace {

TEST_CASE("byte tokens print as text that cannot drive a terminal") {
    const std::pair<int64_t, std::string> table[] = {
        {'A', "A"},      {'\n', "\n"},    {'\t', "\t"},   {27, "\\x1b"},
        {0x7f, "\\x7f"}, {'\r', "\\x0d"}, {0xc3, "\xc3"}, {256, "<256>"}};
    for (const auto& [token, text] : table) CHECK(byte_token_text(token) == text);
}

TEST_CASE("a stream of bytes gives whole characters") {
    const auto stream = ByteCodec().stream();
    const std::string text = "a\u00e9\u20ac\U0001F600\xc3z\xe2\x82";
    const std::vector<std::string> pieces = {"a", "", "\u00e9",     "", "",      "\u20ac", "",
                                             "",  "", "\U0001F600", "", "\xc3z", "",       ""};
    REQUIRE(text.size() == pieces.size());
    for (size_t i = 0; i < text.size(); ++i)
        CHECK(stream->push(static_cast<unsigned char>(text[i])) == pieces[i]);
    CHECK(stream->finish() == "\xe2\x82");
}

// Returns the tokenizer NAME of the fixture.
text::Tokenizer fixture_tokenizer(const std::string& name) {
    const auto source =
        nlohmann::json::parse(test::content_of(test::fixture_path("tokenizers/tokenizers.json")));
    for (const auto& row : source["rows"]) {
        if (row["name"] != name) continue;
        nlohmann::json sections = row["tokenizer"];
        sections["model"] = source["models"][sections["model"].get<std::string>()];
        return text::Tokenizer::parse(sections.dump(), name);
    }
    FAIL("no tokenizer " << name);
    return text::Tokenizer::parse("", name);
}

TEST_CASE("a text that goes on with a prompt keeps its first blank, and repeats nothing") {
    struct Row {
        const char* prompt;
        const char* whole;
    };
    for (const char* name : {"llama2", "llama2 first", "gemma", "gpt2"}) {
        const text::Tokenizer tokenizer = fixture_tokenizer(name);
        const TokenizerCodec codec(tokenizer);
        for (const Row& row : {Row{"In the", "In the beginning"}, Row{"the earth", "the earth and"},
                               Row{"a \u1ec7", "a \u1ec7 the"}, Row{"x\u1ec7", "x\u1ec7\u1ec7"}}) {
            INFO(name << ": " << row.whole);
            const std::vector<int32_t> before = codec.encode(row.prompt, false);
            const std::vector<int32_t> whole = codec.encode(row.whole, false);
            REQUIRE(std::equal(before.begin(), before.end(), whole.begin()));
            const auto stream = codec.stream(before);
            std::string text;
            for (size_t i = before.size(); i < whole.size(); ++i) text += stream->push(whole[i]);
            text += stream->finish();
            CHECK(row.prompt + text == row.whole);
        }
    }
    // An answer is an independent text.
    const text::Tokenizer llama = fixture_tokenizer("llama2");
    const TokenizerCodec codec(llama);
    const auto stream = codec.stream();
    std::string text;
    for (const int32_t id : codec.encode("the", true)) text += stream->push(id);
    CHECK(text + stream->finish() == "the");
}

TEST_CASE("a text ends before the first stop, however it comes in pieces") {
    struct Row {
        std::vector<std::string> stops;
        std::string text, expected;
        bool stopped;
    };
    const Row rows[] = {
        {{}, "all of it", "all of it", false},
        {{"END"}, "one END two", "one ", true},
        {{"END"}, "one EN", "one EN", false},
        {{"END"}, "EEND", "E", true},
        {{"aab"}, "aaaab", "aa", true},
        {{"\n\n", "stop"}, "a\nb stop\n\n", "a\nb ", true},
        {{"bc", "abcd"}, "abcd", "a", true},  // the first whole match
        {{"x"}, "x", "", true},
    };
    for (const Row& row : rows)
        for (size_t piece = 1; piece <= row.text.size(); ++piece) {
            StopTexts stops(row.stops);
            std::string text;
            for (size_t i = 0; i < row.text.size(); i += piece)
                text += stops.push(std::string_view(row.text).substr(i, piece));
            const bool stopped = stops.has_stopped();
            text += stops.finish();
            CHECK(text == row.expected);
            CHECK(stopped == row.stopped);
        }
}

}  // namespace
}  // namespace dslaunch::decoder
