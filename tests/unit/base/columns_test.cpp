#include "base/screen.h"

#include "base/text.h"
#include "base/text/text_table.h"
#include "support/catch.h"

namespace dslaunch {

TEST_CASE("lines are broken between words, and words stay whole") {
    struct Row {
        const char* text;
        Wrap wrap;
        const char* lines;
    };
    const Row rows[] = {
        {"", {.width = 5}, ""},
        {"one two", {.width = 7}, "one two"},
        {"one two", {.width = 6}, "one\ntwo"},
        {"one two", {.width = 6, .indent = 2}, "one\n  two"},
        {"one two", {.width = 8, .first = 2, .indent = 1}, "one\n two"},
        {"  one two", {.width = 6, .indent = 2}, "  one\n  two"},
        {"a/long/path b", {.width = 4}, "a/long/path\nb"},
        {"b a/long/path", {.width = 4}, "b\na/long/path"},
        {"±±± ±", {.width = 5}, "±±± ±"},
    };
    for (const Row& row : rows) {
        INFO(row.text);
        CHECK(wrapped(row.text, row.wrap) == row.lines);
    }
}

TEST_CASE("our lines fit a terminal, and a command that is broken stays one for a shell") {
    const std::string prose = "dslaunch: error: one two three four five six seven";
    CHECK(fitted_to(0, prose) == prose);
    CHECK(fitted_to(80, prose) == prose);
    CHECK(fitted_to(32, prose) == "dslaunch: error: one two three\n    four five six seven");
    CHECK(fitted_to(32, prose + "\n  it is\n") ==
          "dslaunch: error: one two three\n    four five six seven\n  it is\n");
    CHECK(fitted_to(24, "  n1: one two three four five") == "  n1: one two three four\n      five");
    const std::string command = "dslaunch generate run --chat \"a b\" --tokens 'c d'";
    CHECK(fitted_to(30, "  " + command) ==
          "  dslaunch generate run \\\n      --chat \"a b\" --tokens \\\n      'c d'");
    CHECK(fitted_to(40, "dslaunch: next: " + command) ==
          "dslaunch: next: dslaunch generate run \\\n    --chat \"a b\" --tokens 'c d'");
    for (size_t width = 20; width < 90; ++width)
        for (const std::string& line : split(fitted_to(width, "go on with: " + command), '\n'))
            CHECK(columns_of(line) <= width);
}

TEST_CASE("a table has columns as wide as its cells, left or right") {
    CHECK(text_table({{"a", "bb"}, {"ccc", "±"}, {"", "d"}}) == "a    bb\nccc  ±\n     d\n");
    CHECK(text_table({{"n", "name"}, {"10", "x"}}, {.align = "><"}) == " n  name\n10  x\n");
    CHECK(text_table({{"a", "b"}, {"1"}}) == "a  b\n1\n");
}

TEST_CASE("columns of a table that is too wide go below, each part with the first column") {
    const std::vector<std::vector<std::string>> rows = {{"host", "state", "kernel"},
                                                        {"n1", "good", "6.1"}};
    const char* whole = "host  state  kernel\nn1    good   6.1\n";
    CHECK(text_table(rows, {.width = 0}) == whole);
    CHECK(text_table(rows, {.width = 19}) == whole);
    const char* parts = "host  state\nn1    good\n\nhost  kernel\nn1    6.1\n";
    CHECK(text_table(rows, {.width = 18}) == parts);
    CHECK(text_table(rows, {.width = 3}) == parts);
    // 3 and 2 columns, not 4 and 1.
    const std::vector<std::vector<std::string>> five = {{"h", "aa", "bb", "cc", "dd", "ee"}};
    CHECK(text_table(five, {.width = 20}) == "h  aa  bb  cc\n\nh  dd  ee\n");
}

}  // namespace dslaunch
