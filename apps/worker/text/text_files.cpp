#include "worker/text/text_files.h"

#include <fmt/core.h>

#include <filesystem>

#include "base/error.h"
#include "base/text.h"
#include "base/text/json_place.h"
#include "base/text_bytes.h"
#include "infer/text/byte_codec.h"
#include "infer/text/tokenizer_codec.h"
#include "storage/files/mapped_file.h"
#include "storage/huggingface/generation_config.h"

namespace dslaunch::worker {

namespace {

std::optional<std::string> text_of_file(const std::string& path) {
    std::error_code unreadable;
    if (!std::filesystem::exists(path, unreadable)) return std::nullopt;
    return std::string(text_in(storage::MappedFile(path).bytes()));
}

// chat_template.jinja, or else the template in tokenizer_config.json, which has the special tokens
// too.
std::optional<tokens::ChatTemplate> chat_template_of(const std::string& folder) {
    const std::string config_path = fmt::format("{}/tokenizer_config.json", folder);
    const std::string template_path = fmt::format("{}/chat_template.jinja", folder);
    std::optional<std::string> source = text_of_file(template_path);
    tokens::TemplateVariables special;
    if (const std::optional<std::string> text = text_of_file(config_path)) {
        const JsonPlace::Json json = JsonPlace::parse(config_path, *text);
        for (const auto& [key, value] : json.items()) {
            if (!key.ends_with("_token")) continue;
            const bool has_content = value.is_object() && value.contains("content");
            const JsonPlace::Json& token = has_content ? value["content"] : value;
            if (token.is_string())
                special.emplace_back(key, tokens::template_value(token.get<std::string>()));
        }
        if (!source && json.contains("chat_template") && json["chat_template"].is_string())
            source = json["chat_template"].get<std::string>();
    }
    if (!source) return std::nullopt;
    return tokens::ChatTemplate::parse(*source, template_path, std::move(special));
}

}  // namespace

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
    }
    if (!folder.empty()) chat_ = chat_template_of(folder);
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

std::string TextFiles::chat_text(const nlohmann::ordered_json& messages,
                                 const nlohmann::ordered_json& tools) const {
    if (!chat_)
        fail(ExitCode::kInput,
             "{}: the model has no chat template (chat_template.jinja, or `chat_template` in "
             "tokenizer_config.json); give a --prompt",
             folder_.empty() ? "MODEL" : printable(folder_));
    tokens::ChatInput input;
    input.messages = tokens::template_value(messages);
    if (!tools.is_null() && !tools.empty()) input.tools = tokens::template_value(tools);
    input.add_generation_prompt = true;
    return chat_->apply(input).text;
}

}  // namespace dslaunch::worker
