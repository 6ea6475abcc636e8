#include "worker/text/text_files.h"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "base/text/words.h"
#include "decoder/codec/text_codec.h"
#include "storage/huggingface/named_place.h"
#include "text/chat_template/values/json_text.h"

namespace dslaunch::worker {

namespace {

bool is_no_effort(const text::jinja::Value& effort) {
    return effort.is(text::jinja::ValueKind::kText) && effort.text() == "none";
}

}  // namespace

TextFiles::TextFiles(const std::string& folder, int64_t vocabulary, const std::string& model)
    : folder_(folder), model_(folder.empty() ? model : folder), vocabulary_(vocabulary) {
    if (!folder.empty()) {
        generation_ = storage::read_generation_config(folder);
        const std::string path = fmt::format("{}/tokenizer.json", folder);
        std::error_code unreadable;
        if (std::filesystem::exists(path, unreadable)) {
            tokenizer_ = text::Tokenizer::of_folder(folder);
            codec_ = std::make_unique<decoder::TokenizerCodec>(*tokenizer_);
        }
        chat_ = text::ChatTemplates::read(folder);
        const storage::GenerationConfig config = storage::read_tokens_of_config(folder);
        first_token_ = generation_.bos_token ? generation_.bos_token : config.bos_token;
        ends_ = find_end_tokens(folder, generation_, config, tokenizer_, chat_);
    }
    if (!codec_ && vocabulary <= decoder::kByteVocabMax)
        codec_ = std::make_unique<decoder::ByteCodec>();
}

std::string TextFiles::without_codec() const {
    return fmt::format("{} has {} and no tokenizer{}",
                       model_.empty() ? "the model" : printable(model_),
                       counted(vocabulary_, "token"), folder_.empty() ? "" : ".json");
}

const decoder::TextCodec& TextFiles::require_codec(std::string_view advice) const {
    const std::filesystem::path beside = std::filesystem::path(model_).parent_path();
    std::error_code missing;
    if (!codec_ && folder_.empty() && std::filesystem::exists(beside / "tokenizer.json", missing) &&
        !std::filesystem::exists(beside / "config.json", missing))
        fail(ExitCode::kInput,
             "{0}: has tokenizer.json but no config.json, so it is not a whole model: if a run was "
             "ended while it wrote this folder, finish it with --resume --output {1}; otherwise "
             "copy config.json from the model's files",
             printable(beside.empty() ? "." : beside.string()),
             shell_word(beside.empty() ? "." : beside.string()));
    // Tokenizer::of_folder() throws an error that names what the folder lacks.
    if (!codec_ && !folder_.empty()) static_cast<void>(text::Tokenizer::of_folder(folder_));
    if (!codec_)
        fail(ExitCode::kInput, "{}{}{}", without_codec(),
             advice.empty() ? ", so it accepts only token ids: give --prompt-ids 5,17,2" : advice,
             advice.empty() && folder_.empty() && !model_.empty()
                 ? "; " + storage::folder_of_archive_text(model_)
                 : "");
    return *codec_;
}

std::string TextFiles::chat_text(const text::ChatInput& chat,
                                 const text::jinja::Limits& limits) const {
    if (!chat_) {
        static_cast<void>(require_codec());
        fail(ExitCode::kInput,
             "{} has no chat template (chat_template.jinja, or `chat_template` in "
             "tokenizer_config.json); use --prompt instead",
             model_.empty() ? "the model" : printable(model_));
    }
    const bool with_tools =
        !chat.tools.is(text::jinja::ValueKind::kNone) && !chat.tools.items().empty();
    const text::ChatTemplate& made = chat_->choose(with_tools);
    const auto require = [&](bool is_given, const char* name, const char* advice) {
        if (is_given && !made.mentions(name))
            fail(ExitCode::kInput,
                 "{}: the template does not use `{}`, so the model would not see it{}", made.name(),
                 name, advice);
    };
    require(with_tools, "tools", "; remove it, or describe the tools in a message");
    require(!chat.documents.is(text::jinja::ValueKind::kNone), "documents",
            ": put them into a message");
    const auto effort = std::ranges::find(chat.more, "reasoning_effort",
                                          &std::pair<std::string, text::jinja::Value>::first);
    require(effort != chat.more.end() && !is_no_effort(effort->second), "reasoning_effort",
            made.mentions("enable_thinking")
                ? ": send \"chat_template_kwargs\": {\"enable_thinking\": true} or false"
                : ": remove it");
    text::TemplateOptions options;
    options.limits = limits;
    text::ChatInput input = chat;
    input.prefers_objects = true;
    return made.apply(input, options).text;
}

}  // namespace dslaunch::worker
