// Which vocabulary the tokens of rows are of: what `data prepare` writes into the metadata of its
// file, and whether a model's folder has the same. Data path: tokenizer.json -> [here] -> rows ->
// [here] -> a warning. Pure but for reading files.
#pragma once

#include <map>
#include <string>

namespace dslaunch::storage {

// Returns the metadata of rows whose tokens are of the tokenizer in FOLDER. The same for each copy
// of that tokenizer. Empty: its tokenizer.json is not there, or holds no vocabulary.
[[nodiscard]] std::map<std::string, std::string> row_origin(const std::string& folder);

// Returns the warning for rows with METADATA that a model of FOLDER is to read: their tokens mean
// other texts to it; empty: they mean the same, or nothing tells.
[[nodiscard]] std::string other_vocabulary_text(const std::map<std::string, std::string>& metadata,
                                                const std::string& folder);

}  // namespace dslaunch::storage
