#include "server/json/json_document.h"

#include <fmt/core.h>

#include <nlohmann/json.hpp>
#include <random>
#include <string>

#include "support/catch.h"
#include "unit/server/heap_watch.h"
#include "unit/server/json/as_json.h"

namespace dslaunch::server {
namespace {

using nlohmann::json;

std::variant<JsonDocument, JsonFault> read(const std::string& text, int64_t bytes_max = 1 << 30) {
    RequestBudget account(bytes_max);
    MemoryLease lease(account);
    return JsonDocument::read(text, lease);
}

TEST_CASE("a document says what another library reads") {
    for (const std::string text :
         {R"(null)", R"( true )", R"([])", R"({})", R"([[],{},[{}]])", "\xef\xbb\xbf[1]",
          R"([0, -0, 1, -1, 9223372036854775807, -9223372036854775808])",
          R"([0.5, 1e3, -2E-3, 1.5e+2, 1e-400, 0e5, 0.0])",
          R"(["", "a", "\"\\\/\b\f\n\r\t", "\u0041\u00e4\u20ac\ud83d\ude00", "ä€😀", "\u0000"])",
          R"({"a": {"b": [1, {"c": null}], "d": "x"}, "": false, "\u0061b": [true, false]})"}) {
        const auto document = read(text);
        INFO(text);
        if (const auto* fault = std::get_if<JsonFault>(&document)) FAIL(fault->why);
        CHECK(as_json(std::get<JsonDocument>(document).root()) == json::parse(text));
    }
    const auto large = read("[18446744073709551615, 1e30]");
    const JsonView root = std::get<JsonDocument>(large).root();
    CHECK((*root.items().begin()).is_large_integer());
    CHECK((*root.items().begin()).real() == 0x1p64);
    CHECK_FALSE((*++root.items().begin()).is_large_integer());
}

TEST_CASE("what is no JSON is refused with its place") {
    for (const std::string text : {"",
                                   " ",
                                   "{",
                                   "[",
                                   "]",
                                   "}",
                                   "[1",
                                   "[1,",
                                   "[1,]",
                                   "[,1]",
                                   "[1 2]",
                                   "{\"a\"}",
                                   "{\"a\":}",
                                   "{\"a\":1,}",
                                   "{\"a\" 1}",
                                   "{a:1}",
                                   "{1:1}",
                                   "[1}",
                                   "{\"a\":1]",
                                   "1 2",
                                   "nul",
                                   "tru",
                                   "True",
                                   "NaN",
                                   "[nan]",
                                   "Infinity",
                                   "-",
                                   "+1",
                                   "01",
                                   "-01",
                                   "1.",
                                   ".5",
                                   "1e",
                                   "1e+",
                                   "0x1",
                                   "1e400",
                                   "-1e400",
                                   "\"",
                                   "\"a",
                                   "\"\\",
                                   "\"\\x\"",
                                   "\"\\u12\"",
                                   "\"\\u12g4\"",
                                   "\"\\ud800\"",
                                   "\"\\ud800\\u0041\"",
                                   "\"\\ud800x\"",
                                   "\"\\udc00\"",
                                   "\"\n\"",
                                   "\"\x01\"",
                                   "\"\xff\"",
                                   "\"\xc0\x80\"",
                                   "\"\xed\xa0\x80\"",
                                   "\"\xf4\x90\x80\x80\"",
                                   "\"\xe2\x82\"",
                                   "// a\n1",
                                   "'a'",
                                   "[1]\x01",
                                   "\"\\u-001\"",
                                   "\"\\u 001\""}) {
        INFO(text);
        const auto document = read(text);
        REQUIRE(std::holds_alternative<JsonFault>(document));
        CHECK_FALSE(std::get<JsonFault>(document).short_of_memory);
        CHECK_FALSE(json::accept(text));
    }
    const auto nul = read(std::string("\"\\\0\"", 4));
    CHECK(std::holds_alternative<JsonFault>(nul));
    CHECK(std::get<JsonFault>(read("{'a': 1}")).why ==
          "a key has single quotes, but needs double quotes (\") at byte 1");
    CHECK(std::get<JsonFault>(read("['a']")).why ==
          "a text has single quotes, but needs double quotes (\") at byte 1");
    CHECK(std::get<JsonFault>(read("[1, x]")).why.find("at byte 4") != std::string::npos);
}

TEST_CASE("a key that stands twice in an object is refused, however many stand between") {
    for (const int keys : {0, 1, 20, 5000}) {
        std::string text = "{\"a\": 0";
        for (int i = 0; i < keys; ++i) text += fmt::format(", \"k{}\": {{\"a\": 1}}", i);
        CHECK(std::holds_alternative<JsonDocument>(read(text + "}")));
        // The name counts, however it is written.
        for (const char* again : {", \"a\": 2}", ", \"\\u0061\": 2}"}) {
            const auto document = read(text + again);
            REQUIRE(std::holds_alternative<JsonFault>(document));
            CHECK(std::get<JsonFault>(document).why.find("twice") != std::string::npos);
        }
    }
}

TEST_CASE("depth has a limit that nothing recurses for") {
    const auto nested = [](size_t depth) {
        return std::string(depth, '[') + std::string(depth, ']');
    };
    CHECK(std::holds_alternative<JsonDocument>(read(nested(JsonDocument::kDepthMax))));
    for (const size_t depth : {size_t{JsonDocument::kDepthMax + 1}, size_t{1'000'000}}) {
        const auto document = read(nested(depth));
        REQUIRE(std::holds_alternative<JsonFault>(document));
        CHECK(std::get<JsonFault>(document).why.find("deeper") != std::string::npos);
    }
}

std::string repeated(const std::string& piece, int times) {
    std::string text;
    for (int i = 0; i < times; ++i) text += (i > 0 ? "," : "") + piece;
    return text;
}

// The costliest shapes of a body: many values in few bytes.
TEST_CASE("a document costs no more memory than it pays for, and that is a few times its text") {
    std::string keys;
    for (int i = 0; i < 80'000; ++i) keys += fmt::format("{}\"k{}\":0", i > 0 ? "," : "", i);
    const std::string texts[] = {
        "[" + repeated("[]", 300'000) + "]",
        "[" + repeated("{}", 300'000) + "]",
        "[" + repeated("1", 300'000) + "]",
        "[" + repeated("\"\"", 300'000) + "]",
        "[" + repeated(R"({"role":"u","content":""})", 50'000) + "]",
        "[" + repeated(R"({"type":"text","text":""})", 50'000) + "]",
        "{" + keys + "}",
        "\"" + std::string(1'000'000, 'a') + "\"",
    };
    for (const std::string& text : texts) {
        RequestBudget account(int64_t{1} << 30);
        MemoryLease lease(account);
        std::string copy = text;
        test::watch_peak();
        const auto document = JsonDocument::read(std::move(copy), lease);
        const int64_t peak = test::peak_bytes();
        INFO(text.substr(0, 40) << ": " << peak << " bytes of heap, paid " << lease.bytes());
        REQUIRE(std::holds_alternative<JsonDocument>(document));
        // A step of growth pays for both lists and gives the old one back.
        CHECK(peak <= lease.bytes() * 3 / 2 + 4096);
        CHECK(lease.bytes() <= 20 * std::ssize(text) + 4096);
        // With less it is refused, and has not taken more.
        const int64_t half = lease.bytes() / 2;
        if (half < 4096) continue;
        RequestBudget small(half);
        MemoryLease short_lease(small);
        copy = text;
        test::watch_peak();
        const auto refused = JsonDocument::read(std::move(copy), short_lease);
        CHECK(test::peak_bytes() <= half + 4096);
        REQUIRE(std::holds_alternative<JsonFault>(refused));
        CHECK(std::get<JsonFault>(refused).short_of_memory);
    }
}

TEST_CASE("bytes of documents in any disorder are read as another library reads them") {
    std::mt19937 random(7);
    const std::string pieces[] = {"{",     "}",           "[",  "]",      ",",    ":",
                                  "\"a\"", "\"b\"",       "1",  "-2.5e3", "null", "true",
                                  " ",     "\"\\u00e4\"", "\"", "\\",     "0"};
    int valid = 0;
    for (int i = 0; i < 200'000; ++i) {
        std::string text;
        const size_t numel = 1 + random() % 9;
        for (size_t k = 0; k < numel; ++k) text += pieces[random() % std::size(pieces)];
        const auto document = read(text);
        const bool is_read = std::holds_alternative<JsonDocument>(document);
        const auto expected = json::parse(text, nullptr, false);
        const auto* fault = std::get_if<JsonFault>(&document);
        if (fault != nullptr && fault->why.find("twice") != std::string::npos) continue;
        if (is_read == expected.is_discarded()) FAIL(text);
        if (!is_read) continue;
        ++valid;
        if (as_json(std::get<JsonDocument>(document).root()) != expected) FAIL(text);
    }
    CHECK(valid > 1000);
}

}  // namespace
}  // namespace dslaunch::server
