#include "base/text/words.h"

#include "support/catch.h"

using namespace dslaunch;

TEST_CASE("words are split at blanks that no quote protects") {
    using Words = std::vector<std::string>;
    const auto words = [](const char* text) { return split_words(text, Comments::kAreWords); };
    CHECK(words("") == Words{});
    CHECK(words(" -o A=b\t-x ") == Words{"-o", "A=b", "-x"});
    CHECK(words("-o 'ProxyCommand nc %h' \"a 'b' c\"") ==
          Words{"-o", "ProxyCommand nc %h", "a 'b' c"});
    CHECK(words("a\\ b c\\\\ \\\"d") == Words{"a b", "c\\", "\"d"});
    CHECK(words("$(date) `x` ;rm * \\n") == Words{"$(date)", "`x`", ";rm", "*", "\\n"});
    CHECK(words("'' x") == Words{"", "x"});
    CHECK(words("a #b") == Words{"a", "#b"});
    CHECK(split_words("a #b", Comments::kEndTheLine) == Words{"a"});
    CHECK_FALSE(words("'a b"));
    CHECK_FALSE(words("a \"b"));
}

TEST_CASE("a word of a shell reads back as itself") {
    CHECK(shell_word("a/b-c=d:1") == "a/b-c=d:1");
    CHECK(shell_word("") == "''");
    CHECK(shell_word("a b") == "'a b'");
    CHECK(shell_word("it's") == R"('it'\''s')");
    CHECK(shell_word("a\nb") == R"($'a\012b')");
    CHECK(shell_word("it's\ta\\b") == R"($'it\'s\011a\\b')");
}
