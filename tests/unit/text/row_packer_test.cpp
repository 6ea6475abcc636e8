#include "text/rows/row_packer.h"

#include <map>
#include <random>

#include "support/catch.h"

namespace dslaunch::text {
namespace {

TokenDocument document_of(int32_t first, int32_t length, int32_t learned_from = 0) {
    TokenDocument document;
    for (int32_t i = 0; i < length; ++i) {
        document.tokens.push_back(first + i);
        document.is_learned.push_back(i >= learned_from);
    }
    return document;
}

std::vector<TokenRow> packed(const PackRules& rules, const std::vector<TokenDocument>& documents) {
    std::vector<TokenRow> rows;
    RowPacker packer(rules, [&](const TokenRow& row) { rows.push_back(row); });
    for (const TokenDocument& document : documents) packer.add(document);
    packer.finish();
    CHECK(packer.counts().rows == std::ssize(rows));
    return rows;
}

using Numbers = std::vector<int32_t>;

TEST_CASE("targets are the next tokens of the same document that are learned") {
    const auto rows = packed({.length = 6, .packs = true, .padding = 9},
                             {document_of(10, 3, 2), document_of(20, 2)});
    REQUIRE(rows.size() == 1);
    CHECK(rows[0].tokens == Numbers{10, 11, 12, 20, 21, 9});
    CHECK(rows[0].targets == Numbers{-100, 12, -100, 21, -100, -100});
    CHECK(rows[0].documents == Numbers{0, 0, 0, 1, 1, 2});
}

TEST_CASE("without packing each document has a row") {
    const auto rows = packed({.length = 4, .padding = 0}, {document_of(10, 2), document_of(20, 4)});
    REQUIRE(rows.size() == 2);
    CHECK(rows[0].tokens == Numbers{10, 11, 0, 0});
    CHECK(rows[1].tokens == Numbers{20, 21, 22, 23});
}

TEST_CASE("a document longer than a row is split, cut or dropped") {
    const std::vector<TokenDocument> documents = {document_of(10, 8)};
    const auto split = packed({.length = 4}, documents);
    REQUIRE(split.size() == 3);
    CHECK(split[0].tokens == Numbers{10, 11, 12, 13});
    CHECK(split[1].tokens == Numbers{13, 14, 15, 16});
    CHECK(split[2].tokens == Numbers{16, 17, 0, 0});
    CHECK(split[1].targets == Numbers{14, 15, 16, -100});
    const auto cut = packed({.length = 4, .long_documents = LongDocuments::kCut}, documents);
    REQUIRE(cut.size() == 1);
    CHECK(cut[0].tokens == Numbers{10, 11, 12, 13});
    CHECK(packed({.length = 4, .long_documents = LongDocuments::kDrop}, documents).empty());
}

TEST_CASE("a row in which nothing is learned is left out") {
    RowPacker packer({.length = 4}, [](const TokenRow&) { FAIL("a row"); });
    packer.add(document_of(10, 3, 3));
    packer.add(document_of(20, 2, 2));
    packer.finish();
    CHECK(packer.counts().unlearned_rows == 2);
    CHECK(packer.counts().rows == 0);
    CHECK(packer.counts().tokens == 0);
}

TEST_CASE("packing keeps every document whole and every target once, and wastes little") {
    std::mt19937 random(3);
    std::vector<TokenDocument> documents;
    int64_t tokens = 0;
    for (int32_t i = 0; i < 2000; ++i) {
        const auto length = static_cast<int32_t>(2 + random() % 60);
        documents.push_back(document_of(100 * i, length, static_cast<int32_t>(random() % 4)));
        tokens += length;
    }
    const auto rows = packed({.length = 64, .packs = true, .padding = -7}, documents);
    CHECK(static_cast<double>(tokens) / static_cast<double>(rows.size() * 64) > 0.96);
    std::map<int32_t, size_t> seen;  // tokens of each document in a row
    for (const TokenRow& row : rows)
        for (size_t i = 0; i < 64; ++i) {
            if (row.tokens[i] == -7) continue;
            ++seen[row.tokens[i] / 100];
            const bool follows = i + 1 < 64 && row.documents[i] == row.documents[i + 1];
            if (follows) CHECK(row.tokens[i + 1] == row.tokens[i] + 1);
            if (row.targets[i] != -100) CHECK((follows && row.targets[i] == row.tokens[i] + 1));
        }
    for (size_t i = 0; i < documents.size(); ++i)
        CHECK(seen[static_cast<int32_t>(i)] == documents[i].tokens.size());
}

}  // namespace
}  // namespace dslaunch::text
