#include "storage/foreign/name_pattern.h"

#include <chrono>
#include <string>

#include "base/error.h"
#include "support/catch.h"
#include "support/text_tools.h"

using namespace dslaunch;
using namespace dslaunch::storage;

TEST_CASE("patterns of names match as Python's re.match does") {
    struct Row {
        const char* pattern;
        const char* name;
        bool matches;
    };
    const Row table[] = {
        {"norm", "norm.weight", true},
        {"norm", "final_norm", false},
        {"^norm$", "norm.weight", false},
        {"^norm\\.weight$", "norm.weight", true},
        {"^norm\\.weight$", "normXweight", false},
        {"norm.weight", "normXweight", true},
        {"\\d+.input_layernorm.weight", "12.input_layernorm.weight", true},
        {"\\d+.input_layernorm.weight", "x.input_layernorm.weight", false},
        {"tied_modules.embed.*", "tied_modules.embed.word_embeddings.weight", true},
        {".*mlp.dense_4h_to_h.weight", "3.mlp.dense_4h_to_h.weight", true},
        {".*mlp.dense_4h_to_h.weight", "3.mlp.dense_h_to_4h.weight", false},
        {"a|b\\.c$", "a.x", true},
        {"a|b\\.c$", "b.c", true},
        {"a|b\\.c$", "b.cd", false},
        {"[0-9]{2}\\.w", "12.w", true},
        {"[0-9]{2}\\.w", "1.w", false},
        {"[^a-c]x", "dx", true},
        {"[^a-c]x", "bx", false},
        {"lay?ers", "laers.0", true},
        {"", "anything", true},
    };
    for (const Row& row : table) {
        INFO(row.pattern << " | " << row.name);
        CHECK(NamePattern("f", row.pattern).matches(row.name) == row.matches);
    }
}

TEST_CASE("forms of patterns that are not read are refused with their place") {
    for (const char* pattern :
         {"(a|b)", "a**", "\\bnorm", "[abc", "a{0}", "a{99}", "a{2,3}", "+a"}) {
        INFO(pattern);
        const std::string said = test::error_of(
            ExitCode::kInput, [&] { static_cast<void>(NamePattern("file", pattern)); });
        CHECK(said.find("file: the pattern `") == 0);
    }
}

TEST_CASE("a pattern that makes other engines try all ways takes little time") {
    std::string pattern, name(1000, 'a');
    for (int i = 0; i < 300; ++i) pattern += "a*";
    const NamePattern hostile("f", pattern + "b$");
    const auto begin = std::chrono::steady_clock::now();
    CHECK_FALSE(hostile.matches(name));
    CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(5));
}

TEST_CASE("a pattern that repeats too much is refused") {
    std::string text;
    for (int i = 0; i < 100; ++i) text += "a{64}";
    CHECK(test::error_of(ExitCode::kInput, [&] {
              NamePattern("file", text);
          }).find("repeats more than") != std::string::npos);
}
