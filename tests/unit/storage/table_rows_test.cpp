// Parquet files that pyarrow wrote (tests/fixtures/make_tables.py), compared with the same rows as
// lines of JSON.
#include "storage/tables/table_rows.h"

#include <array>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "support/catch.h"
#include "support/places.h"
#include "support/skip.h"
#include "support/temporary_folder.h"
#include "support/text_tools.h"

namespace dslaunch::storage {
namespace {

using Json = nlohmann::json;

constexpr std::array<std::string_view, 8> kColumns = {"messages", "text",   "prompt", "chosen",
                                                      "rejected", "system", "tools",  "input"};

std::string table(const std::string& name) {
    return test::fixture_path("tables/" + name);
}

std::vector<TableRow> table_rows_of(const std::string& path) {
    const std::unique_ptr<TableRows> rows = open_table(path, kColumns);
    std::vector<TableRow> all;
    for (std::vector<TableRow> some = rows->next(); !some.empty(); some = rows->next()) {
        CHECK(std::ssize(some) <= kTableRowsOfBlock);
        for (TableRow& row : some) all.push_back(std::move(row));
    }
    CHECK(rows->next().empty());
    return all;
}

// Returns the rows of a file. They have no keys with null, except for a message's content.
std::vector<Json> lines_of(const std::string& path) {
    std::ifstream file(path);
    std::vector<Json> lines;
    for (std::string line; std::getline(file, line);) lines.push_back(Json::parse(line));
    return lines;
}

bool is_left_out() {
    const std::string why = DSL_PARQUET_LEFT_OUT;
    if (!why.empty()) test::report_skipped("reading Parquet", why);
    return !why.empty();
}

std::string refusal(const std::string& path) {
    return test::error_of(ExitCode::kInput, [&] { static_cast<void>(table_rows_of(path)); });
}

}  // namespace

TEST_CASE("a Parquet file's rows are the lines of JSON that say the same, however it is stored") {
    if (is_left_out()) return;
    for (const std::string kind : {"chats", "texts", "pairs"})
        for (const std::string how : {"snappy", "zstd-v2", "large-gzip", "words", "plain"}) {
            INFO(kind << " " << how);
            const std::vector<Json> lines = lines_of(table(kind + ".jsonl"));
            const std::vector<TableRow> rows = table_rows_of(table(kind + "-" + how + ".parquet"));
            REQUIRE(rows.size() == lines.size());
            for (size_t i = 0; i < rows.size(); ++i) {
                CHECK(rows[i].reason.empty());
                CHECK(Json::parse(rows[i].json) == lines[i]);
            }
        }
}

TEST_CASE("a row without a line of JSON has a reason, and bytes that are no text stay to be seen") {
    if (is_left_out()) return;
    const std::vector<TableRow> numbers = table_rows_of(table("bad-number.parquet"));
    REQUIRE(numbers.size() == 2);
    CHECK(numbers[0].json == R"({"messages":[{"role":"assistant","content":"t1 t2","n":1.0}]})");
    CHECK(numbers[1].reason == "messages: contains a number that is not finite");
    const std::vector<TableRow> bytes = table_rows_of(table("bad-bytes.parquet"));
    REQUIRE(bytes.size() == 8);
    CHECK(bytes[0].json == R"({"text":"t1 t2"})");
    CHECK(bytes[1].json == "{\"text\":\"\xff\xfe\"}");
    const std::vector<TableRow> bad = table_rows_of(table("bad.parquet"));
    REQUIRE(bad.size() == 8);
    CHECK(bad[1].json == "{}");
    CHECK(bad[4].json == R"({"messages":[{"role":"user","content":"t1"},null]})");
    CHECK(bad[5].json == R"({"messages":[{"content":"t1"}]})");
}

TEST_CASE("a Parquet file is known by its name or its beginning") {
    const test::TemporaryFolder folder;
    const auto write = [&](const std::string& name, const std::string& bytes) {
        std::ofstream(folder.path() + "/" + name) << bytes;
        return folder.path() + "/" + name;
    };
    CHECK(is_parquet(write("a.parquet", "")));
    CHECK(is_parquet(write("a.data", "PAR1...")));
    CHECK_FALSE(is_parquet(write("a.jsonl", "{}")));
    CHECK_FALSE(is_parquet(write("empty", "")));
    CHECK_FALSE(is_parquet(folder.path()));
}

TEST_CASE("a Parquet file that is damaged, or has no column that is read, is refused by name") {
    if (is_left_out()) {
        CHECK_THROWS_WITH(open_table(table("texts-plain.parquet"), kColumns),
                          Catch::Contains("texts-plain.parquet: is a Parquet file, which this "
                                          "build cannot read: run `make parquet` to fetch Arrow"));
        return;
    }
    const std::string other = refusal(table("other.parquet"));
    CHECK_THAT(other, Catch::Contains("other.parquet: has the columns id, label, but none of"));
    const test::TemporaryFolder folder;
    std::ifstream file(table("texts-plain.parquet"), std::ios::binary);
    const std::string whole((std::istreambuf_iterator<char>(file)), {});
    REQUIRE(whole.size() > 1000);
    const auto read_again = [&](const std::string& bytes) {
        const std::string path = folder.path() + "/damaged.parquet";
        std::ofstream(path, std::ios::binary) << bytes;
        return refusal(path);
    };
    for (const size_t bytes : {size_t{0}, size_t{4}, whole.size() / 2, whole.size() - 1}) {
        INFO(bytes << " of " << whole.size());
        CHECK_THAT(read_again(whole.substr(0, bytes)),
                   Catch::Contains("damaged.parquet: cannot be read as Parquet: "));
    }
    // A changed byte gives an error or other rows, but ends no program.
    for (size_t i = 0; i < whole.size(); ++i) {
        std::string turned = whole;
        turned[i] = static_cast<char>(turned[i] ^ 0x55);
        const std::string said = read_again(turned);
        CHECK((said == "accepted" || said.find("damaged.parquet: ") == 0 ||
               said.find("/damaged.parquet: ") != std::string::npos));
    }
}

}  // namespace dslaunch::storage
