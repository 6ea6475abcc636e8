#include "base/text.h"

#include "base/path.h"
#include "base/text_bytes.h"
#include "support/catch.h"

namespace dslaunch {

TEST_CASE("a decimal integer is the whole text or nothing") {
    CHECK(parse_int("42") == 42);
    CHECK(parse_int("-7") == -7);
    for (const char* bad : {"", " 1", "1 ", "1e3", "0x10", "99999999999999999999", "+1"}) {
        INFO(bad);
        CHECK_FALSE(parse_int(bad).has_value());
    }
}

TEST_CASE("the folder of a path is one that can be opened") {
    CHECK(folder_of("a/b/c") == "a/b");
    CHECK(folder_of("/a/b") == "/a");
    const std::string here = std::filesystem::current_path().string();
    CHECK(path_from_here(here + "/a/b") == "a/b");
    CHECK(path_from_here(here + "/-run") == "./-run");
    CHECK(path_from_here("/-run") == "/-run");
    CHECK(folder_of("/a") == "/");
    CHECK(folder_of("a") == ".");
    CHECK(folder_of("a/") == "a");
}

TEST_CASE("bytes become hexadecimal digits, and only such digits are recognized") {
    CHECK(hex_text(bytes_in("")) == "");
    CHECK(hex_text(bytes_in("\x01\xAB\xff")) == "01abff");
    CHECK(is_hex_text("01abff", 6));
    CHECK(is_hex_text("", 0));
    for (const char* bad : {"01abf", "01abfff", "01ABFF", "01abfg", " 1abff"})
        CHECK_FALSE(is_hex_text(bad, 6));
}

TEST_CASE("edit distance counts swaps of neighbours as one edit") {
    CHECK(edit_distance("stage", "stage") == 0);
    CHECK(edit_distance("stgae", "stage") == 1);
    CHECK(edit_distance("", "abc") == 3);
    CHECK(edit_distance("kitten", "sitting") == 3);
}

TEST_CASE("the nearest word is offered only when it is near") {
    const std::vector<std::string> words = {"stage", "optimizer", "scheduler"};
    CHECK(nearest("optimiser", words) == "optimizer");
    CHECK_FALSE(nearest("zzzzzzzz", words).has_value());
    // Short words: two wrong letters of two or three are too many.
    const std::vector<std::string> names = {"lr", "f32", "host"};
    for (const char* other : {"tp", "pp", "wd", "fp8", "rm", "x"}) {
        INFO(other);
        CHECK_FALSE(nearest(other, names).has_value());
    }
    CHECK(nearest("rl", names) == "lr");
    CHECK(nearest("f23", names) == "f32");
    CHECK(nearest("hsot", names) == "host");
}

TEST_CASE("text from elsewhere cannot drive a terminal") {
    CHECK(printable("a\x1b[31mb") == "a\\x1b[31mb");
    CHECK(printable("tab\tstays") == "tab\tstays");
    CHECK(printable("\xc2\x9b"
                    "31m") == "\\xc2\\x9b31m");
    CHECK(printable("\x9b"
                    "31m") == "\\x9b31m");
    CHECK(printable("\xe2\x82") == "\\xe2\\x82");
    CHECK(printable("\xe2\x80\xae") == "\\xe2\\x80\\xae");
    CHECK(printable("\xe2\x82\xac") == "\xe2\x82\xac");
    CHECK(printable("\xc3\xa9") == "\xc3\xa9");
}

TEST_CASE("a text ends before the character that further bytes could make whole") {
    // Each prefix of a character is incomplete, and the character and what cannot become one are
    // not. The second byte of the last three characters has a range of its own.
    for (const std::string letter : {"\xC3\xA9", "\xE2\x82\xAC", "\xF0\x9F\x98\x80", "\xE0\xA0\x80",
                                     "\xED\x9F\xBF", "\xF4\x8F\xBF\xBF"}) {
        for (size_t length = 1; length < letter.size(); ++length) {
            CHECK(whole_characters("ab" + letter.substr(0, length)) == 2);
            CHECK(whole_characters(letter.substr(0, length)) == 0);
        }
        CHECK(whole_characters("ab" + letter) == 2 + letter.size());
    }
    for (const std::string wrong : {"", "a", "\xC1", "\x80", "\xE0\x9F", "\xED\xA0", "\xF4\x90",
                                    "\xF0\x8F\x80", "\xE2\x28", "\xF5\x80"})
        CHECK(whole_characters(wrong) == wrong.size());
}

TEST_CASE("splitting keeps empty pieces and joining undoes it") {
    CHECK(split("a,,b", ',').size() == 3);
    CHECK(join(split("a,,b", ','), ",") == "a,,b");
    CHECK(trim("  x y \n") == "x y");
}

}  // namespace dslaunch
