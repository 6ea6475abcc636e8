#include "storage/tokens/row_vocabulary.h"

#include <unistd.h>

#include <map>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/error.h"
#include "base/fd.h"
#include "base/text.h"
#include "base/text/fnv1a.h"
#include "base/text/words.h"

namespace dslaunch::storage {

namespace {

using Json = nlohmann::json;

constexpr const char* kFile = "tokenizer.json";
constexpr const char* kFileKey = "tokenizer";         // hash of the file's bytes
constexpr const char* kVocabularyKey = "vocabulary";  // hash of each token's meaning
constexpr size_t kBytesMax = size_t{1} << 30;

std::string hash_text(std::string_view text) {
    return fmt::format("{:016x}", fnv1a(kFnv1aBegin, text));
}

// Returns the text of FOLDER's tokenizer.json; empty if it cannot be read.
std::string file_of(const std::string& folder) {
    const std::string path = folder + "/" + kFile;
    if (::access(path.c_str(), R_OK) != 0) return "";
    try {
        return read_file(path, kBytesMax);
    } catch (const Error&) {
        return "";
    }
}

// Returns a hash of the vocabulary in TEXT, the content of a tokenizer.json. Hashes the tokens in
// the order of their numbers. Returns "" if there is no vocabulary. Skips added tokens, whose names
// differ between a model and its chat variants.
std::string vocabulary_of(const std::string& text) {
    const Json file = Json::parse(text, nullptr, /*allow_exceptions=*/false);
    if (!file.is_object() || !file.contains("model") || !file["model"].is_object()) return "";
    const Json pieces = file["model"].value("vocab", Json());
    std::map<int64_t, std::string> by_number;
    if (pieces.is_object())
        for (const auto& [piece, number] : pieces.items())
            if (number.is_number_integer()) by_number[number.get<int64_t>()] = piece;
    if (pieces.is_array())
        for (size_t i = 0; i < pieces.size(); ++i)
            if (pieces[i].is_array() && !pieces[i].empty() && pieces[i][0].is_string())
                by_number[static_cast<int64_t>(i)] = pieces[i][0].get<std::string>();
    if (by_number.empty()) return "";
    uint64_t hash = kFnv1aBegin;
    for (const auto& [number, piece] : by_number)
        hash = fnv1a(fnv1a(hash, std::to_string(number) + " "), piece + "\n");
    return fmt::format("{:016x}", hash);
}

}  // namespace

std::string metadata_value(const std::map<std::string, std::string>& metadata, const char* key) {
    const auto found = metadata.find(key);
    return found == metadata.end() ? "" : found->second;
}

std::map<std::string, std::string> row_origin(const std::string& folder) {
    const std::string text = file_of(folder);
    const std::string vocabulary = vocabulary_of(text);
    if (vocabulary.empty()) return {};
    return {{kFileKey, hash_text(text)}, {kVocabularyKey, vocabulary}};
}

bool has_row_origin(const std::map<std::string, std::string>& metadata) {
    return metadata.contains(kVocabularyKey);
}

std::string other_vocabulary_text(const std::map<std::string, std::string>& metadata,
                                  const std::string& folder) {
    const std::string expected = metadata_value(metadata, kVocabularyKey);
    if (expected.empty()) return "";
    const std::string text = file_of(folder);
    if (text.empty() || hash_text(text) == metadata_value(metadata, kFileKey)) return "";
    const std::string found = vocabulary_of(text);
    if (found.empty() || found == expected) return "";
    return fmt::format(
        "its rows were made with another model's tokenizer, so their tokens mean different text to "
        "this model; make new rows: dslaunch data prepare TEXT --model {} -o FILE",
        shell_word(folder));
}

}  // namespace dslaunch::storage
