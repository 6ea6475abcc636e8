// What a model's folder says of text: its tokenizer and the tokens that end a text. Data path:
// folder -> [here] -> generate, serve, eval. Const functions: any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "infer/text/text_codec.h"
#include "tokens/template/template_files.h"
#include "tokens/tokenizer/tokenizer.h"

namespace dslaunch::worker {

class TextFiles {
  public:
    // FOLDER: of a Hugging Face model, or empty for a model without one. VOCABULARY: tokens that
    // the model knows. Throws Error{kInput} naming the file that cannot be read.
    TextFiles(const std::string& folder, int64_t vocabulary);

    // Null: the model's tokens have no text here.
    [[nodiscard]] const infer::TextCodec* codec() const { return codec_.get(); }
    // Throws Error{kInput} that says what is missing where there is no codec.
    [[nodiscard]] const infer::TextCodec& require_codec() const;
    [[nodiscard]] bool has_chat() const { return chat_.has_value(); }
    // The text of a chat in the model's template, with the start of its answer. Throws
    // Error{kInput} where there is no template, and for messages that it refuses.
    [[nodiscard]] std::string chat_text(const nlohmann::ordered_json& messages) const;
    // The same of values; TOOLS: a list, or none. LIMITS bound what the template may take.
    [[nodiscard]] std::string chat_text(tokens::jinja::Value messages, tokens::jinja::Value tools,
                                        const tokens::jinja::Limits& limits) const;
    [[nodiscard]] const std::vector<int32_t>& end_tokens() const { return end_tokens_; }

  private:
    std::string folder_;
    int64_t vocabulary_;
    std::optional<tokens::Tokenizer> tokenizer_;
    std::optional<tokens::ChatTemplates> chat_;
    std::unique_ptr<const infer::TextCodec> codec_;
    std::vector<int32_t> end_tokens_;
};

}  // namespace dslaunch::worker
