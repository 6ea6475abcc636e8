// Facts of rows of tokens that `data prepare` writes: their vocabulary, in the metadata of the
// file, and the documents that share a row. Data path: tokenizer.json -> [here] -> rows -> [here]
// -> a warning, ranges of documents. Pure but for reading files.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/range.h"

namespace dslaunch::storage {

// Returns the metadata of rows with tokens of the tokenizer in FOLDER, the same for each copy of
// it. Empty: its tokenizer.json is not there, or holds no vocabulary.
[[nodiscard]] std::map<std::string, std::string> row_origin(const std::string& folder);

// Returns the warning for rows with METADATA that a model of FOLDER will read, if their tokens mean
// other texts to it; empty: they mean the same, or nothing shows it.
[[nodiscard]] std::string other_vocabulary_text(const std::map<std::string, std::string>& metadata,
                                                const std::string& folder);

// The documents that share a row of packed text, by the numbers of its column `documents`: tokens
// with one number see each other, and positions begin at 0 where the number changes.
struct RowDocuments {
    std::vector<Range> places;  // of the tokens, in order
    // The first token whose number cannot be in a packed row: below 0, or repeated after another,
    // so that its tokens would see earlier ones at the same positions; -1: none.
    int64_t bad = -1;
};

[[nodiscard]] RowDocuments documents_of_row(std::span<const int64_t> numbers);

// The words for a bad number.
inline constexpr const char* kBadDocument =
    "documents of a row have numbers from 0 on, and none comes again after another";

}  // namespace dslaunch::storage
