#include "worker/data/line_encoder.h"

#include <algorithm>
#include <utility>

#include "storage/huggingface/generation_config.h"
#include "storage/huggingface/model_folder.h"
#include "text/chat_template/template_files.h"

namespace dslaunch::worker {
namespace {

std::vector<int32_t> end_tokens(const std::string& model, const text::Tokenizer& tokenizer) {
    std::vector<int32_t> ends;
    if (const auto name = text::special_token_of(model, "eos_token"))
        if (const auto id = tokenizer.id_of(*name)) ends.push_back(*id);
    if (!storage::model_folder_of(model)) return ends;
    for (const int32_t id : storage::end_tokens_of(model))
        if (std::ranges::count(ends, id) == 0) ends.push_back(id);
    return ends;
}

}  // namespace

LineEncoder::LineEncoder(const std::string& model, const LineRules& rules)
    : tokenizer_(text::Tokenizer::of_folder(model)),
      ends_(end_tokens(model, tokenizer_)),
      chat_(text::ChatTemplates::read(model)) {
    rules_.tokenizer = &tokenizer_;
    rules_.chat = chat_ ? &*chat_ : nullptr;
    rules_.learns_all = rules.learns_all;
    rules_.makes_chats = rules.makes_chats;
    if (rules.ends_texts) rules_.end_tokens = ends_;
}

EncodedLine LineEncoder::encode(const SampleLine& line) const {
    EncodedLine made;
    made.sample.reason = line.reason;
    if (!line.reason.empty()) return made;
    text::ParsedRow parsed = text::parse_row(line.text);
    if (!parsed.sample) {
        made.sample.reason = parsed.reason;
        return made;
    }
    made.format = parsed.sample->format;
    made.unread = std::move(parsed.unread);
    made.is_continued = parsed.sample->is_continued;
    made.has_empty_answer = parsed.sample->has_empty_answer;
    made.sample = text::encode_sample(*parsed.sample, rules_);
    if (!made.is_pair() || !made.sample.reason.empty()) return made;
    made.rejected = text::encode_sample(*parsed.sample, rules_, text::PreferenceSide::kRejected);
    if (!made.rejected.reason.empty()) made.sample.reason = "rejected: " + made.rejected.reason;
    text::share_prompt(made.sample, made.rejected);
    return made;
}

}  // namespace dslaunch::worker
