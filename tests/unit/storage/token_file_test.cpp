#include "storage/tokens/token_file.h"

#include <unistd.h>

#include <cstdio>
#include <random>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/new_files.h"
#include "storage/tokens/row_documents.h"
#include "storage/tokens/token_counts.h"
#include "support/catch.h"
#include "support/text_tools.h"

using namespace dslaunch;
using namespace dslaunch::storage;

namespace {

class TokenPath {
  public:
    explicit TokenPath(const std::string& content) { write_file_atomically(path_, content); }
    ~TokenPath() { std::remove(path_.c_str()); }
    [[nodiscard]] const std::string& path() const { return path_; }

  private:
    std::string path_ = "/tmp/dsl_token_test." + std::to_string(::getpid());
};

std::string token_file_message_of(const std::string& path, DType dtype) {
    return test::error_of(ExitCode::kInput, [&] { TokenFile file(path, dtype); });
}

}  // namespace

TEST_CASE("tokens are read at any index, little-endian, in both widths") {
    const TokenPath file(std::string("\x01\x00\xff\xff\x02\x01\x00\x80", 8));
    const TokenFile narrow(file.path(), DType::kU16);
    REQUIRE(narrow.token_count() == 4);
    std::vector<int64_t> three(3);
    narrow.read(1, three);
    REQUIRE(three == std::vector<int64_t>{0xffff, 0x102, 0x8000});
    const TokenFile wide(file.path(), DType::kU32);
    std::vector<int64_t> two(2);
    wide.read(0, two);
    REQUIRE(two == std::vector<int64_t>{0xffff0001, 0x80000102});
}

TEST_CASE("signed tokens are read, and a negative one is outside every vocabulary") {
    const std::vector<int64_t> values = {7, 1 << 20, -3, 5};
    std::string narrow, wide;
    for (const int64_t value : values) {
        const auto four = static_cast<int32_t>(value);
        narrow.append(reinterpret_cast<const char*>(&four), 4);
        wide.append(reinterpret_cast<const char*>(&value), 8);
    }
    for (const auto& [content, dtype] :
         {std::pair{narrow, DType::kI32}, std::pair{wide, DType::kI64}}) {
        const TokenPath file(content);
        const TokenFile tokens(file.path(), dtype);
        std::vector<int64_t> read(4);
        tokens.read(0, read);
        CHECK(read == values);
        const auto outside = tokens.first_outside(1 << 21);
        REQUIRE(outside);
        CHECK(outside->index == 2);
        CHECK(outside->token == -3);
    }
}

TEST_CASE("tokens of another width than they are read in are refused by name, at any vocabulary") {
    std::mt19937 random(3);
    const auto bytes_of = [&](int64_t count, int64_t vocabulary, size_t width) {
        std::string bytes;
        for (int64_t i = 0; i < count; ++i) {
            const int64_t token = static_cast<int64_t>(random()) % vocabulary;
            bytes.append(reinterpret_cast<const char*>(&token), width);
        }
        return bytes;
    };
    const std::pair<DType, size_t> dtypes[] = {
        {DType::kU16, 2}, {DType::kU32, 4}, {DType::kI32, 4}, {DType::kI64, 8}};
    for (const int64_t vocabulary : {4, 64, 256, 50'257, 65'000, 128'256, 1'000'000})
        for (const int64_t count : {256, 20'000, 100'000})
            for (const auto& [written, width] : dtypes) {
                if (width == 2 && vocabulary > 65'536) continue;
                const TokenPath file(bytes_of(count, vocabulary, width));
                for (const auto& [read, read_width] : dtypes) {
                    CAPTURE(vocabulary, count, width, read_width);
                    const std::string message = token_file_message_of(file.path(), read);
                    if (read_width == width) {
                        CHECK(message == "accepted");
                        continue;
                    }
                    // Narrow tokens in a wide type are too large for any vocabulary, and the error
                    // says so.
                    if (width == 2) continue;
                    CHECK_THAT(message,
                               Catch::Contains(width == 8 ? "the tokens seem to be int64"
                                                          : "the tokens seem to be int32"));
                }
            }
}

TEST_CASE("a text that repeats itself is no other width") {
    // Every second token is the same small one, as in a file of words and spaces.
    std::string bytes;
    for (uint16_t i = 0; i < 4'000; ++i) {
        const uint16_t pair[] = {static_cast<uint16_t>(i * 7), 32};
        bytes.append(reinterpret_cast<const char*>(pair), sizeof pair);
    }
    CHECK(token_file_message_of(TokenPath(bytes).path(), DType::kU16) == "accepted");
    CHECK(token_file_message_of(TokenPath(std::string(8'192, '\0')).path(), DType::kU16) ==
          "accepted");
}

TEST_CASE("the first token outside the vocabulary is found with its place, across chunks") {
    for (const size_t bad : {size_t{0}, size_t{16383}, size_t{16384}, size_t{40000}}) {
        std::string content(2 * 40001, '\0');
        content[2 * bad + 1] = 1;
        content[2 * 40000 + 1] = 1;
        const TokenPath file(content);
        const TokenFile tokens(file.path(), DType::kU16);
        const auto found = tokens.first_outside(256);
        REQUIRE(found.has_value());
        REQUIRE(found->index == static_cast<int64_t>(bad));
        REQUIRE(found->token == 256);
        REQUIRE(!tokens.first_outside(257).has_value());
    }
}

TEST_CASE("a token file that is missing, empty, odd or a folder says so") {
    REQUIRE(token_file_message_of("/proc/nonexistent/x.bin", DType::kU16).find("cannot open") !=
            std::string::npos);
    REQUIRE(
        token_file_message_of("/tmp", DType::kU16).find("is a folder, but a file is expected") !=
        std::string::npos);
    const TokenPath odd("abc");
    REQUIRE(token_file_message_of(odd.path(), DType::kU16).find("3 bytes are not") !=
            std::string::npos);
    const TokenPath empty("");
    REQUIRE(token_file_message_of(empty.path(), DType::kU16).find("is empty") != std::string::npos);
}

TEST_CASE("tokens of another tokenizer are noticed by how small they are beside the vocabulary") {
    const auto text_of = [](const std::vector<uint16_t>& tokens, int64_t vocabulary) {
        const TokenPath file(
            {reinterpret_cast<const char*>(tokens.data()), tokens.size() * sizeof(uint16_t)});
        return foreign_text(TokenFile(file.path(), DType::kU16), vocabulary);
    };
    const auto bytes_of = [](std::string_view text, int times) {
        std::vector<uint16_t> tokens;
        for (int i = 0; i < times; ++i)
            for (const char c : text) tokens.push_back(static_cast<unsigned char>(c));
        return tokens;
    };
    // One sentence has few different bytes.
    const std::vector<uint16_t> english = bytes_of("In the beginning was the word.\n", 4);
    CHECK_THAT(
        text_of(english, 49'152),
        Catch::Contains("below 491, but the model's vocabulary has 49152: they look like bytes") &&
            Catch::Contains("dslaunch data prepare"));
    CHECK_THAT(text_of(english, 32'000), Catch::Contains("look like bytes"));
    CHECK(text_of(english, 256).empty());
    CHECK(text_of(english, 512).empty());
    CHECK(text_of(bytes_of("In the", 1), 49'152).empty());
    std::vector<uint16_t> own = english;
    own[70] = 491;
    CHECK(text_of(own, 49'152).empty());
    // A vocabulary of 65 characters, and bytes of a text in another script.
    std::vector<uint16_t> signs;
    for (int i = 0; i < 1000; ++i) signs.push_back(static_cast<uint16_t>(i * 7 % 65));
    CHECK_THAT(text_of(signs, 50'257), Catch::Contains("another tokenizer's"));
    const std::vector<uint16_t> greek =
        bytes_of("Ἐν ἀρχῇ ἦν ὁ λόγος, καὶ ὁ λόγος ἦν πρὸς τὸν θεόν, καὶ θεὸς ἦν ὁ λόγος.", 4);
    CHECK_FALSE(text_of(greek, 49'152).empty());
    // Sums have few different characters, which are small tokens in every vocabulary: here in
    // SmolLM2's (17 + the byte - 33) and in GPT-2's (the byte - 33).
    for (const int shift : {-16, -33}) {
        std::vector<uint16_t> sums;
        for (int i = 0; i < 500; ++i)
            for (const char c : std::to_string(i) + "+" + std::to_string(i * 7) + "=")
                sums.push_back(static_cast<uint16_t>(c + shift));
        CHECK(text_of(sums, 49'152).empty());
    }
    CHECK(text_of(std::vector<uint16_t>(1000, 7), 49'152).empty());
}

TEST_CASE("documents of a row are runs of one number each") {
    struct Case {
        std::vector<int64_t> numbers;
        std::vector<Range> places;
        int64_t bad = -1;
    };
    const std::vector<Case> cases = {
        {{}, {}},
        {{0, 0, 1, 2, 2, 2}, {{0, 2}, {2, 1}, {3, 3}}},
        {{7}, {{0, 1}}},
        {{5, 5, 3, 9}, {{0, 2}, {2, 1}, {3, 1}}},
        {{0, -1}, {{0, 1}}, 1},
        {{0, 1, 1, 0}, {{0, 1}, {1, 2}}, 3},
        {{2, int64_t{1} << 31, 2}, {{0, 1}, {1, 1}}, 2},
    };
    for (const Case& one : cases) {
        const RowDocuments found = documents_of_row(one.numbers);
        CHECK(found.places == one.places);
        CHECK(found.bad == one.bad);
    }
}
