#include "worker/train/text_samples.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <utility>

#include "base/error.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/text.h"
#include "base/text/json.h"
#include "base/text/message.h"
#include "storage/huggingface/model_folder.h"
#include "worker/text/prompts.h"

namespace dslaunch::worker {

namespace {

constexpr size_t kShownPromptMax = 40;  // characters of a progress line
constexpr size_t kShownTextMax = 160;

// The prompts in the form in which the first rank sends them to the other ranks.
struct SamplePrompts {
    static constexpr const char* kWhat = "prompts of the samples";
    std::string fault;  // why the prompts could not be read; empty if they could
    std::vector<std::vector<int>> tokens;
    std::vector<int> end_tokens;
};

std::string ids_text(const std::vector<int32_t>& tokens) {
    std::vector<std::string> numbers;
    for (const int32_t token : tokens) numbers.push_back(std::to_string(token));
    return join(numbers, ",");
}

// Returns the text of TOKENS, which follow the tokens BEFORE. Without a codec, returns the numbers
// of TOKENS.
std::string text_of(const TextFiles& files, const std::vector<int32_t>& before,
                    const std::vector<int32_t>& tokens) {
    if (files.codec() == nullptr) return ids_text(tokens);
    const std::unique_ptr<decoder::TextStream> stream = files.codec()->stream(before);
    std::string text;
    for (const int32_t token : tokens) text += stream->push(token);
    return text + stream->finish();
}

// Returns TEXT on one line, cut to about LENGTH_MAX bytes; no character is split.
std::string short_text(const std::string& text, size_t length_max) {
    if (text.size() <= length_max) return printable(text);
    size_t end = length_max;
    while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
    return printable(text.substr(0, end)) + " …";
}

// Removes an unfinished line of a killed run from the end of the file at PATH.
void cut_torn_line(const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    if (!in) return;
    const std::string text((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
    const size_t end = text.rfind('\n');
    const size_t whole = end == std::string::npos ? 0 : end + 1;
    std::error_code failed;  // the next write reports a file that cannot be changed
    if (whole < text.size()) std::filesystem::resize_file(path, whole, failed);
}

}  // namespace

TextSamples::TextSamples(TextSampleParts parts, runtime::TokenWriterParts writer)
    : parts_(std::move(parts)), writer_(std::move(writer)) {
    how_.tokens_max = parts_.config->samples.tokens;
    const int64_t vocabulary = writer_.vocabulary();
    SamplePrompts prompts;
    const bool first = parts_.collectives->topology().rank() == 0;
    if (first) {
        try {
            const auto folder = storage::model_folder_of(parts_.model);
            files_ = std::make_unique<TextFiles>(folder.value_or(""), vocabulary, parts_.model);
            read_prompts();
        } catch (const Error& error) {
            prompts.fault = error.what();
        }
        for (const std::vector<int32_t>& tokens : prompts_) {
            prompts.tokens.emplace_back(tokens.begin(), tokens.end());
            if (tokens.empty() || *std::ranges::max_element(tokens) >= vocabulary)
                prompts.fault = fmt::format(
                    "dslaunch.samples: prompt {} has {}: give prompts that the model's tokenizer "
                    "can read",
                    prompts.tokens.size(),
                    tokens.empty() ? "no tokens" : "a token that the model does not know");
        }
        prompts.end_tokens.assign(how_.end_tokens.begin(), how_.end_tokens.end());
    }
    prompts = decode<SamplePrompts>(parts_.collectives->all_gather(encode(prompts)).front());
    if (!prompts.fault.empty()) fail(ExitCode::kInput, "{}", prompts.fault);
    prompts_.clear();
    for (const std::vector<int>& tokens : prompts.tokens)
        prompts_.emplace_back(tokens.begin(), tokens.end());
    how_.end_tokens.assign(prompts.end_tokens.begin(), prompts.end_tokens.end());
    if (!first || parts_.output.empty()) return;
    const std::string path = parts_.output + "/samples.jsonl";
    if (parts_.steps_before > 0) {
        cut_torn_line(path);
    } else {
        ::unlink(path.c_str());
    }
}

// Reads the prompts that the config names. Called only on the first rank.
void TextSamples::read_prompts() {
    const config::SamplesConfig& config = parts_.config->samples;
    const auto add = [&](const Prompt& prompt, const std::string& shown) {
        prompts_.push_back(prompt.tokens);
        shown_.push_back(shown.empty() ? text_of(*files_, {}, prompt.tokens) : shown);
    };
    constexpr std::string_view kAdvice =
        ": put the tokenizer.json that the model uses into its folder, or give ids in the lines of "
        "dslaunch.samples.file ({\"prompt_ids\": [5, 17]})";
    if (!config.prompts.empty()) static_cast<void>(files_->require_codec(kAdvice));
    for (const std::string& text : config.prompts) {
        PromptArguments arguments;
        arguments.text = text;
        add(prompt_of(arguments, *files_), text);
    }
    how_.end_tokens = files_->end_tokens();
    if (config.file.empty()) return;
    PromptArguments arguments;
    arguments.file = config.file;
    arguments.file_option = "--sample-prompts";
    const std::vector<Prompt> prompts = prompts_of_file(arguments, *files_, parts_.model);
    for (size_t i = 0; i < prompts.size(); ++i) {
        if (!prompts[i].fault.empty())
            fail(ExitCode::kInput, "{}: prompt {}: {}", printable(config.file), i + 1,
                 prompts[i].fault);
        add(prompts[i], "");
    }
}

void TextSamples::write(int64_t step) {
    const auto texts = writer_.write(prompts_, how_);
    if (texts && parts_.collectives->topology().rank() == 0) report(step, *texts);
}

void TextSamples::report(int64_t step, const std::vector<std::vector<int32_t>>& texts) const {
    std::string lines;
    for (size_t i = 0; i < texts.size(); ++i) {
        const std::string text = text_of(*files_, prompts_[i], texts[i]);
        parts_.reporter->progress(fmt::format("step {}: {} | {}", step,
                                              short_text(shown_[i], kShownPromptMax),
                                              short_text(text, kShownTextMax)));
        JsonWriter json;
        json.begin_object().field("step", step).field("index", i).field("prompt", shown_[i]);
        json.field("text", text).key("ids").begin_array();
        for (const int32_t id : texts[i]) json.value(id);
        json.end_array().end_object();
        lines += json.text() + "\n";
    }
    if (parts_.output.empty()) return;
    const std::string path = parts_.output + "/samples.jsonl";
    const UniqueFd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
    const off_t whole = file.valid() ? ::lseek(file.get(), 0, SEEK_END) : 0;
    const int status = file.valid() ? write_full(file.get(), lines) : -errno;
    if (status == 0) return;
    const bool is_torn = file.valid() && (whole < 0 || ::ftruncate(file.get(), whole) != 0);
    log_warn("samples", "{}: the samples of step {} cannot be written: {}{}", printable(path), step,
             errno_text(-status), is_torn ? "; a part of them may be in the file" : "");
}

}  // namespace dslaunch::worker
