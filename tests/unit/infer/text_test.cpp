#include "infer/text/byte_codec.h"
#include "infer/text/stop_texts.h"
#include "support/catch.h"

namespace dslaunch::infer {
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

TEST_CASE("a text ends before the first stop, however it comes in pieces") {
    struct Row {
        std::vector<std::string> stops;
        std::string text, expected;
        bool is_stopped;
    };
    const Row rows[] = {
        {{}, "all of it", "all of it", false},
        {{"END"}, "one END two", "one ", true},
        {{"END"}, "one EN", "one EN", false},
        {{"END"}, "EEND", "E", true},
        {{"aab"}, "aaaab", "aa", true},
        {{"\n\n", "stop"}, "a\nb stop\n\n", "a\nb ", true},
        {{"bc", "abcd"}, "abcd", "a", true},  // the first one that is whole
        {{"x"}, "x", "", true},
    };
    for (const Row& row : rows)
        for (size_t piece = 1; piece <= row.text.size(); ++piece) {
            StopTexts stops(row.stops);
            std::string text;
            for (size_t i = 0; i < row.text.size(); i += piece)
                text += stops.push(std::string_view(row.text).substr(i, piece));
            const bool is_stopped = stops.is_stopped();
            text += stops.finish();
            CHECK(text == row.expected);
            CHECK(is_stopped == row.is_stopped);
        }
}

}  // namespace
}  // namespace dslaunch::infer
