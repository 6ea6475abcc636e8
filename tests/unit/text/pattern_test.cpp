// Patterns that run without the library must mean the same as in the library.
#include "text/pattern/pattern.h"

#include <random>
#include <string>
#include <vector>

#include "base/text.h"
#include "support/catch.h"
#include "support/text_tools.h"
#include "text/pattern/simple_pattern.h"
#include "text/unicode/graphemes.h"
#include "text/unicode/normal_form.h"

using namespace dslaunch;
using namespace dslaunch::text;

namespace {

// clang-format off
const std::string kSimple[] = {
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)",
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
    R"([一-龥぀-ゟ゠-ヿ]+|\p{Han}|[a-z]++x|\d{2,}|\D{3})",
    R"((?:ab|a)(?:bc)?c|(?=\p{Ll})[^x]|x\P{L}|\S[-a])",
    R"(\s{2,3}|a{2}|(?:a|(?i:K))b)",
};
// clang-format on

std::string spans(const Pattern& pattern, std::string_view text) {
    std::vector<Match> matches;
    pattern.find_all(text, matches);
    std::string out;
    for (const Match& match : matches) out += fmt::format("{}-{} ", match.begin, match.end);
    return out;
}

std::string random_text(std::mt19937& random) {
    const std::string parts[] = {"a",   "b",  "c",       "x",      "K",      "s",  "'",
                                 " ",   "  ", "\n",      "\r",     "1",      "23", "'s",
                                 "'LL", "é",  "e\u0301", "\u017F", "\u212A", "人", "か",
                                 "!",   "/",  "-",       "\u00A0", "²",      "ǅ",  "\u0660"};
    std::string text;
    for (size_t i = random() % 30; i > 0; --i) {
        if (random() % 8 == 0) {
            const char32_t point = random() % 0x20000;
            append_utf8(text, point >= 0xD800 && point < 0xE000 ? 'q' : point);
        } else {
            text += parts[random() % std::size(parts)];
        }
    }
    return text;
}

}  // namespace

TEST_CASE("patterns that run without the library find what the library finds") {
    std::mt19937 random(3);
    for (const std::string& expression : kSimple) {
        INFO(expression);
        const auto simple = compile_simple_pattern(expression);
        const auto library = compile_library_pattern(expression);
        REQUIRE(simple);
        for (int turn = 0; turn < 300; ++turn) {
            const std::string text = random_text(random);
            INFO(text);
            REQUIRE(spans(*simple, text) == spans(*library, text));
        }
    }
}

TEST_CASE("what the small engine does not know it leaves to the library") {
    for (const char* expression :
         {"a*", "(?<=a)b", "a*?b", "^a", "a$", "(a)\\1", "[[a]b]", "[a&&b]", "\\bx", "(?i)a",
          "(?i:ss)", ".", "(?:a|)", "(?>a)", "[]a]", "a{1,2}+", "\\x{41}", "(?:ab)+"}) {
        INFO(expression);
        CHECK_FALSE(compile_simple_pattern(expression));
        (void)compile_library_pattern(expression);
    }
}

TEST_CASE("the library takes properties from our tables, in and out of classes") {
    struct Row {
        const char* expression;
        std::string text;
        const char* spans;
    };
    const Row table[] = {
        {R"((?=.)\p{L}+)", "ab1", "0-2 "},
        {R"((?=.)\P{L}+)", "ab12", "2-4 "},
        {R"((?=.)\p{^L}+)", "ab12", "2-4 "},
        {R"((?=.)[\p{L}\d]+)", "a1 b", "0-2 3-4 "},
        {R"((?=.)[^\p{L}\s]+)", "a1 2", "1-2 3-4 "},
        {R"((?=.)[\p{L}&&[^b]]+)", "abc", "0-1 2-3 "},
        {R"(\bx)", "x xx_x", "0-1 2-3 "},
        {R"(x\B)", "x xx", "2-3 "},
        {R"((?=.)\w+)", "a\u00B2\u200Db", "0-3 6-7 "},
        {R"((?=.)\p{L})", "\U00031350", "0-4 "},  // a letter of Unicode 15
        {R"((?=.)[\w]+)", "a\u00B2b", "0-1 3-4 "},
        {R"((?=.)[^\w]+)", "a\u00B2b", "1-3 "},
        {R"(a*)", "baac", "0-0 1-3 4-4 "},
    };
    for (const Row& row : table) {
        INFO(row.expression);
        CHECK(spans(*compile_library_pattern(row.expression), row.text) == row.spans);
    }
}

TEST_CASE("a pattern that goes back and forth over one run of characters ends with an error") {
    const auto pattern = compile_simple_pattern("a*a*a*a*a*b");
    REQUIRE(pattern);
    CHECK_THAT(
        test::error_of(ExitCode::kInput, [&] { (void)spans(*pattern, std::string(2'000, 'a')); }),
        Catch::Contains("needs too much time"));
    const auto common = compile_simple_pattern(kSimple[1]);
    REQUIRE(common);
    CHECK(spans(*common, std::string(1 << 20, ' ')) == "0-1048576 ");
}

TEST_CASE("normal forms follow the package's version of Unicode") {
    struct Row {
        std::string text, nfc, nfd, nfkc, nfkd;
    };
    const Row table[] = {
        {"abc", "abc", "abc", "abc", "abc"},
        {"e\u0301", "é", "e\u0301", "é", "e\u0301"},
        {"\u1E69", "\u1E69", "s\u0323\u0307", "\u1E69", "s\u0323\u0307"},
        {"s\u0307\u0323", "\u1E69", "s\u0323\u0307", "\u1E69", "s\u0323\u0307"},
        {"한", "한", "\u1112\u1161\u11AB", "한", "\u1112\u1161\u11AB"},
        {"\u1100\u1161\u11A8", "각", "\u1100\u1161\u11A8", "각", "\u1100\u1161\u11A8"},
        {"ﬁ²", "ﬁ²", "ﬁ²", "fi2", "fi2"},
        {"\u0958", "\u0915\u093C", "\u0915\u093C", "\u0915\u093C", "\u0915\u093C"},
        {"\u32FF", "\u32FF", "\u32FF", "\u32FF", "\u32FF"},  // Unicode 12.1 takes it apart
        {"a\u0301\u0300", "á\u0300", "a\u0301\u0300", "á\u0300", "a\u0301\u0300"},
        {"\u0301a", "\u0301a", "\u0301a", "\u0301a", "\u0301a"},
    };
    for (const Row& row : table) {
        INFO(row.text);
        CHECK(to_normal_form(row.text, NormalForm::kNfc) == row.nfc);
        CHECK(to_normal_form(row.text, NormalForm::kNfd) == row.nfd);
        CHECK(to_normal_form(row.text, NormalForm::kNfkc) == row.nfkc);
        CHECK(to_normal_form(row.text, NormalForm::kNfkd) == row.nfkd);
    }
}

TEST_CASE("grapheme clusters end where Unicode's annex 29 says") {
    const std::string one[] = {"a",
                               "e\u0301",
                               "\r\n",
                               "\u1100\u1161\u11A8",
                               "가\u11A8",
                               "각\u11A8",
                               "\U0001F469\u200D\U0001F467",
                               "\U0001F1E9\U0001F1EA",
                               "\u0915\u094D\u0937",
                               "\u0600a",
                               "\u0E01\u0E33"};
    for (const std::string& cluster : one) {
        INFO(cluster);
        CHECK(grapheme_end(cluster, 0) == cluster.size());
    }
    CHECK(grapheme_end("ab", 0) == 1);
    CHECK(grapheme_end("\n\u0301", 0) == 1);
    CHECK(grapheme_end("가가", 0) == 3);
    CHECK(grapheme_end("\U0001F1E9\U0001F1EA\U0001F1E9\U0001F1EA", 0) == 8);
    CHECK(grapheme_end("a\u200D\U0001F467", 0) == 4);
}
