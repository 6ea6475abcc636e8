// Finds the tokens that end a model's text. Data path: a model folder's files -> [here] ->
// generate, serve, eval. Pure, except for reading files.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "storage/huggingface/generation_config.h"
#include "text/chat_template/template_files.h"
#include "text/tokenizer/tokenizer.h"

namespace dslaunch::worker {

// The tokens that end a text, and how they were found.
struct EndTokens {
    std::vector<int32_t> tokens;
    // An end token that is neither in generation_config.json nor in config.json, and the place
    // where it was found, in words. Empty if there is no such token.
    std::string source;
};

// Returns the tokens that generation_config.json (GENERATION) names. Otherwise returns the tokens
// of config.json (CONFIG) and of the tokenizer in FOLDER. If these name none, returns the special
// token that the chat template writes after an answer.
[[nodiscard]] EndTokens find_end_tokens(const std::string& folder,
                                        const storage::GenerationConfig& generation,
                                        const storage::GenerationConfig& config,
                                        const std::optional<text::Tokenizer>& tokenizer,
                                        const std::optional<text::ChatTemplates>& chat);

}  // namespace dslaunch::worker
