// Two parts of a Hugging Face folder: the settings in generation_config.json for making texts, and
// the tokens that its other files name for the beginning and the end of a text. Data path: folder
// -> [here] -> generate, serve, data. Pure, except that it reads files.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace dslaunch::storage {

// The fields of transformers' GenerationConfig. A field that the file does not have is empty.
struct GenerationConfig {
    std::optional<bool> do_sample;
    std::optional<double> temperature, top_p, min_p, repetition_penalty;
    std::optional<int64_t> top_k;
    std::optional<int64_t> max_new_tokens, max_length;  // max_length includes the prompt
    std::optional<int64_t> min_new_tokens, min_length;
    std::optional<int64_t> no_repeat_ngram_size;
    std::optional<int32_t> bos_token;
    std::vector<int32_t> eos_tokens, forced_eos_tokens;
    std::vector<int32_t> suppress_tokens, begin_suppress_tokens;
    std::vector<std::string> stop_strings;
    std::vector<std::vector<int32_t>> bad_words;
    std::vector<std::pair<std::vector<int32_t>, double>> sequence_bias;
    // Settings in the file that are not carried out here, such as "num_beams = 4".
    std::vector<std::string> not_done;

    // Returns true if the file says how tokens are drawn. transformers' defaults are then used for
    // the fields that the file leaves out.
    [[nodiscard]] bool says_sampling() const {
        return do_sample || temperature || top_p || min_p || top_k;
    }
};

// Reads TEXT, the JSON at PATH. Throws Error{kInput} naming PATH and the field for a value that has
// the wrong type or is out of range.
[[nodiscard]] GenerationConfig parse_generation_config(const std::string& path,
                                                       std::string_view text);

// Returns FOLDER's config, or an empty one if there is no such file. Throws what
// parse_generation_config() throws.
[[nodiscard]] GenerationConfig read_generation_config(const std::string& folder);

// Returns the tokens that FOLDER's config.json names for the beginning and the end of a text.
// Throws what parse_generation_config() throws.
[[nodiscard]] GenerationConfig read_tokens_of_config(const std::string& folder);

// Returns the end tokens of generation_config.json, or of config.json if the former names no end
// token. Throws what parse_generation_config() throws.
[[nodiscard]] std::vector<int32_t> end_tokens_of(const std::string& folder);

}  // namespace dslaunch::storage
