// The fingerprint of the vocabulary with which a file of rows was made, stored in the file's
// metadata, and the warning if a model has another vocabulary. Data path: tokenizer.json -> [here]
// -> rows -> [here] -> a warning. Pure, except that it reads files.
#pragma once

#include <map>
#include <string>

namespace dslaunch::storage {

// Returns the metadata for rows of tokens that the tokenizer in FOLDER made. Every copy of the same
// tokenizer gives the same metadata. Returns an empty map if FOLDER has no tokenizer.json, or one
// without a vocabulary.
[[nodiscard]] std::map<std::string, std::string> row_origin(const std::string& folder);

// Returns the value of KEY in METADATA; empty if there is none.
[[nodiscard]] std::string metadata_value(const std::map<std::string, std::string>& metadata,
                                         const char* key);

// Returns true if METADATA says which tokenizer made the rows.
[[nodiscard]] bool has_row_origin(const std::map<std::string, std::string>& metadata);

// Returns a warning if the model in FOLDER is to read rows with METADATA, but their tokens mean
// different texts to this model. Returns an empty text if the tokens mean the same texts, or if
// this cannot be determined.
[[nodiscard]] std::string other_vocabulary_text(const std::map<std::string, std::string>& metadata,
                                                const std::string& folder);

}  // namespace dslaunch::storage
