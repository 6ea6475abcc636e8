// Reads a model folder's facts about text: its tokenizer and the tokens that end a text. Data path:
// folder -> [here] -> generate, serve, eval. Const functions: any thread.
#pragma once

#include <atomic>
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

namespace dslaunch::worker {

// require_codec()'s advice where ids cannot be given.
inline constexpr std::string_view kTokenizerWanted =
    ": put the tokenizer.json that it was trained with into the folder";

class TextFiles {
  public:
    // Reads the files in FOLDER, of a Hugging Face model, or nothing if it is empty. VOCABULARY:
    // tokens that the model knows. MODEL names it in messages if FOLDER is empty. Throws
    // Error{kInput} naming the file that cannot be read.
    TextFiles(const std::string& folder, int64_t vocabulary, const std::string& model = {});

    // Returns null if the model's tokens have no text here.
    [[nodiscard]] const decoder::TextCodec* codec() const { return codec_.get(); }
    // Throws Error{kInput} where there is no codec: says what is missing, and ADVICE, or else how
    // ids are given to `generate`.
    [[nodiscard]] const decoder::TextCodec& require_codec(std::string_view advice = {}) const;
    // Returns "train.pt has 512 tokens and no tokenizer". REQUIRES: there is no codec.
    [[nodiscard]] std::string without_codec() const;
    [[nodiscard]] bool has_chat() const { return chat_.has_value(); }
    // Returns the text of CHAT in the model's template. LIMITS bound the template's work. Throws
    // Error{kInput} if there is no template, for messages that it refuses, and for documents and
    // an effort (`reasoning_effort`) that it does not read. Says once if it does not read tools.
    [[nodiscard]] std::string chat_text(const text::ChatInput& chat,
                                        const text::jinja::Limits& limits = {}) const;
    // Returns the tokens that generation_config.json names, else those in config.json and the
    // tokenizer, or if they name no token, the one that ends a turn in the chat template.
    [[nodiscard]] const std::vector<int32_t>& end_tokens() const { return end_tokens_; }
    // Says where end_tokens() come from, "" if from generation_config.json or config.json alone.
    [[nodiscard]] const std::string& end_source() const { return end_source_; }
    // Returns the token that a text without a prompt begins with.
    [[nodiscard]] std::optional<int32_t> first_token() const { return first_token_; }
    // Returns generation_config.json; empty without such a file.
    [[nodiscard]] const storage::GenerationConfig& generation() const { return generation_; }

  private:
    void find_ends();
    [[nodiscard]] std::optional<int32_t> end_of_turn() const;

    std::string folder_;
    std::string model_;  // in messages
    int64_t vocabulary_;
    std::optional<text::Tokenizer> tokenizer_;
    std::optional<text::ChatTemplates> chat_;
    std::unique_ptr<const decoder::TextCodec> codec_;
    storage::GenerationConfig generation_;
    std::optional<int32_t> first_token_;
    std::vector<int32_t> end_tokens_;
    std::string end_source_;
    mutable std::atomic<bool> warned_ = false;
};

}  // namespace dslaunch::worker
