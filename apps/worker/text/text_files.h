// Reads a model folder's facts about text: its tokenizer and the tokens that end a text. Data path:
// folder -> [here] -> generate, serve, eval. Const functions: any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "decoder/codec/text_codec.h"
#include "storage/huggingface/generation_config.h"
#include "text/chat_template/template_files.h"
#include "text/tokenizer/tokenizer.h"
#include "worker/text/end_tokens.h"

namespace dslaunch::worker {

// The advice for require_codec() in commands that do not accept token ids.
inline constexpr std::string_view kTokenizerWanted =
    ": put the tokenizer.json that the model was trained with into the model's folder";

// The tokenizer, the chat template and the special tokens of one model.
class TextFiles {
  public:
    // Reads the files in FOLDER, a Hugging Face model's folder; reads nothing if FOLDER is empty.
    // VOCABULARY: the number of tokens that the model knows. MODEL names the model in messages if
    // FOLDER is empty. Throws Error{kInput}, naming a file that cannot be read.
    TextFiles(const std::string& folder, int64_t vocabulary, const std::string& model = {});

    // Returns the codec; null if there is no known text for the model's tokens.
    [[nodiscard]] const decoder::TextCodec* codec() const { return codec_.get(); }
    // Returns the codec. Throws Error{kInput} if there is none. The message names the missing file
    // and adds ADVICE; without ADVICE, it describes how to give token ids to `generate`.
    [[nodiscard]] const decoder::TextCodec& require_codec(std::string_view advice = {}) const;
    // Returns a text like "train.pt has 512 tokens and no tokenizer". REQUIRES: there is no codec.
    [[nodiscard]] std::string without_codec() const;
    // Returns true if the folder has a chat template.
    [[nodiscard]] bool has_chat() const { return chat_.has_value(); }
    // Returns the text of CHAT in the model's template. LIMITS restrict the template's work. Throws
    // Error{kInput} if there is no template, if the template refuses the messages, and if CHAT has
    // tools, documents or a `reasoning_effort` that the template does not read.
    [[nodiscard]] std::string chat_text(const text::ChatInput& chat,
                                        const text::jinja::Limits& limits = {}) const;
    // Return the tokens that end a text, and their source (EndTokens::source).
    [[nodiscard]] const std::vector<int32_t>& end_tokens() const { return ends_.tokens; }
    [[nodiscard]] const std::string& end_source() const { return ends_.source; }
    // Returns the token that begins a text without a prompt.
    [[nodiscard]] std::optional<int32_t> first_token() const { return first_token_; }
    // Returns the contents of generation_config.json; empty if there is no such file.
    [[nodiscard]] const storage::GenerationConfig& generation() const { return generation_; }

  private:
    std::string folder_;
    std::string model_;  // its name in messages
    int64_t vocabulary_;
    std::optional<text::Tokenizer> tokenizer_;
    std::optional<text::ChatTemplates> chat_;
    std::unique_ptr<const decoder::TextCodec> codec_;
    storage::GenerationConfig generation_;
    std::optional<int32_t> first_token_;
    EndTokens ends_;
};

}  // namespace dslaunch::worker
