// The tokenizer of a model as values of a GGUF file, and the reverse. Two kinds are known to both
// programs: byte pair encoding of bytes (llama.cpp's `gpt2`), and SentencePiece's byte pair
// encoding of characters (`llama`). Data path: tokenizer.json, tokenizer_config.json <-> [here] <->
// gguf_model_writer.h, gguf_model_reader.h. Pure, except that it reads files.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "storage/gguf/gguf_file.h"
#include "storage/gguf/gguf_values.h"

namespace dslaunch::storage {

// The kinds of tokens, by their numbers in the file.
enum class GgufTokenKind : int32_t {
    kNormal = 1,
    kUnknown = 2,
    kControl = 3,  // special: not part of a text
    kUserDefined = 4,
    kUnused = 5,
    kByte = 6,
};

// A way of splitting a text into pieces before byte pair encoding, by llama.cpp's name.
struct GgufPieces {
    std::string name;
    std::vector<std::string> steps;  // "digits", "gpt2", or a pattern
    bool ignores_merges = false;     // a piece that is a token is not split
};

// Returns the first GgufPieces with these STEPS and IGNORES_MERGES. If there is none, returns the
// first one with these STEPS. Returns null if no GgufPieces have these STEPS.
[[nodiscard]] const GgufPieces* gguf_pieces_with(const std::vector<std::string>& steps,
                                                 bool ignores_merges);
// Returns the GgufPieces that llama.cpp calls NAME; null if NAME is not known here.
[[nodiscard]] const GgufPieces* gguf_pieces_named(std::string_view name);

// Adds the tokenizer in FOLDER, with the chat template and the special tokens, to VALUES.
// VOCABULARY is the number of rows of the embedding. Warns if FOLDER has no tokenizer, or if added
// tokens have no row. Throws Error{kInput} naming the file if llama.cpp has no such tokenizer, or
// if the folder's tokenizer has no tokenizer.json.
void add_tokenizer_values(const std::string& folder, int64_t vocabulary, GgufValues& values);

// The texts of files for a Hugging Face folder.
struct TokenizerTexts {
    std::string tokenizer;         // tokenizer.json; empty if the file has no tokenizer
    std::string tokenizer_config;  // tokenizer_config.json
    std::string generation;        // generation_config.json
};

// Returns the texts for the tokenizer in FILE. Throws Error{kInput} naming the file and the value
// if the tokenizer is of another kind, or its parts do not fit together.
[[nodiscard]] TokenizerTexts tokenizer_of_gguf(const GgufContent& file);

}  // namespace dslaunch::storage
