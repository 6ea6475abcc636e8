#include "worker/text/text_files.h"

#include <fmt/core.h>

#include <filesystem>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "infer/text/byte_codec.h"
#include "infer/text/tokenizer_codec.h"
#include "storage/huggingface/generation_config.h"

namespace dslaunch::worker {

TextFiles::TextFiles(const std::string& folder, int64_t vocabulary)
    : folder_(folder), vocabulary_(vocabulary) {
    if (!folder.empty()) {
        end_tokens_ = storage::end_tokens_of(folder);
        const std::string path = fmt::format("{}/tokenizer.json", folder);
        std::error_code unreadable;
        if (std::filesystem::exists(path, unreadable)) {
            tokenizer_ = tokens::Tokenizer::load(path);
            codec_ = std::make_unique<infer::TokenizerCodec>(*tokenizer_);
        }
        chat_ = tokens::ChatTemplates::read(folder);
    }
    if (!codec_ && vocabulary <= infer::kByteVocabMax)
        codec_ = std::make_unique<infer::ByteCodec>();
}

const infer::TextCodec& TextFiles::require_codec() const {
    if (!codec_)
        fail(ExitCode::kInput,
             "the model's {} tokens have no text here: {}; give the prompt as --prompt-ids",
             vocabulary_,
             folder_.empty() ? "a model's file has no tokenizer, a Hugging Face folder may"
                             : fmt::format("{} has no tokenizer.json", printable(folder_)));
    return *codec_;
}

std::string TextFiles::chat_text(const nlohmann::ordered_json& messages) const {
    return chat_text(tokens::template_value(messages), tokens::jinja::Value::none(), {});
}

std::string TextFiles::chat_text(tokens::jinja::Value messages, tokens::jinja::Value tools,
                                 const tokens::jinja::Limits& limits) const {
    if (!chat_)
        fail(ExitCode::kInput,
             "{}: the model has no chat template (chat_template.jinja, or `chat_template` in "
             "tokenizer_config.json); give a --prompt",
             folder_.empty() ? "MODEL" : printable(folder_));
    const bool with_tools = !tools.is(tokens::jinja::Kind::kNone);
    tokens::ChatInput input;
    input.messages = std::move(messages);
    input.tools = std::move(tools);
    input.add_generation_prompt = true;
    tokens::TemplateOptions options;
    options.limits = limits;
    return chat_->choose(with_tools).apply(input, options).text;
}

}  // namespace dslaunch::worker
