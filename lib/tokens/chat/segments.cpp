#include "tokens/chat/segments.h"

#include "tokens/chat/chat_messages.h"
#include "tokens/template/values/compare.h"
#include "tokens/template/values/letters.h"

#include "base/error.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

namespace dslaunch::tokens {
namespace {

using jinja::Kind;
using jinja::Value;
using Ranges = std::vector<TextRange>;

// TEXT cut at RANGES, which are in order and do not overlap. Neighbours of one kind become one.
std::vector<TextSegment> cut(const std::string& text, const Ranges& ranges) {
    std::vector<TextSegment> segments;
    const auto add = [&](size_t begin, size_t end, bool is_answer) {
        if (begin >= end) return;
        if (!segments.empty() && segments.back().is_answer == is_answer) {
            segments.back().text += text.substr(begin, end - begin);
        } else {
            segments.push_back({text.substr(begin, end - begin), is_answer});
        }
    };
    size_t at = 0;
    for (const TextRange& range : ranges) {
        add(at, range.begin_bytes, false);
        add(range.begin_bytes, range.end_bytes, true);
        at = range.end_bytes;
    }
    add(at, text.size(), false);
    return segments;
}

// Alpaca's prompt, as it came with Stanford's data; the answer follows on a line of its own.
std::string alpaca_prompt(const ChatSample& sample) {
    if (sample.input.empty()) {
        return fmt::format(
            "Below is an instruction that describes a task. Write a response that appropriately "
            "completes the request.\n\n### Instruction:\n{}\n\n### Response:\n",
            sample.instruction);
    }
    return fmt::format(
        "Below is an instruction that describes a task, paired with an input that provides further "
        "context. Write a response that appropriately completes the request.\n\n"
        "### Instruction:\n{}\n\n### Input:\n{}\n\n### Response:\n",
        sample.instruction, sample.input);
}

SegmentedText refused(std::string reason) {
    SegmentedText result;
    result.reason = std::move(reason);
    return result;
}

SegmentedText plain_form(const ChatSample& sample, const jinja::Values& messages) {
    SegmentedText result;
    result.by = AnswersBy::kPlainForm;
    if (sample.format == ChatFormat::kText) {
        result.segments.push_back({sample.text, true});
        return result;
    }
    if (!sample.is_plain) {
        return refused(fmt::format("a row of the form `{}` needs the model's chat template",
                                   chat_format_name(sample.format)));
    }
    if (!sample.tools.is(Kind::kNone) || !sample.documents.is(Kind::kNone))
        return refused("tools and documents need the model's chat template");
    const bool is_alpaca = sample.format == ChatFormat::kInstruction;
    const std::string answer = content_text(messages.back());
    std::string prompt =
        is_alpaca ? alpaca_prompt(sample) : content_text(messages[messages.size() - 2]);
    if (role_of(messages.front()) == "system")
        prompt = content_text(messages.front()) + "\n\n" + prompt;
    if (!prompt.empty()) result.segments.push_back({prompt, false});
    if (!answer.empty()) result.segments.push_back({answer, true});
    if (answer.empty()) return refused("the answer is empty, so there is nothing to learn");
    return result;
}

class AnswerFinder {
  public:
    AnswerFinder(const ChatSample& sample, const ChatTemplate& chat, const jinja::Values& messages,
                 const TemplateOptions& rendering)
        : sample_(sample), chat_(chat), messages_(messages), rendering_(rendering) {}

    SegmentedText run() {
        RenderedChat whole;
        try {
            whole = rendered(messages_, messages_.size(), false);
        } catch (const Error& error) {
            return refused(error.what());
        }
        text_ = std::move(whole.text);
        SegmentedText result;
        std::optional<Ranges> ranges;
        if (chat_.marks_answers() && !whole.has_lost_mark) {
            result.by = AnswersBy::kMarks;
            ranges = marked(whole.generated);
        }
        if (!ranges) ranges = by_message(result.by);
        if (!ranges) return refused(reason_);
        result.segments = cut(text_, *ranges);
        const bool has_answer =
            std::any_of(result.segments.begin(), result.segments.end(),
                        [](const TextSegment& segment) { return segment.is_answer; });
        if (!has_answer) return refused("the template puts no answer into the text");
        return result;
    }

  private:
    // The text of the first COUNT of MESSAGES. Throws Error.
    [[nodiscard]] RenderedChat rendered(const jinja::Values& messages, size_t count,
                                        bool add_generation_prompt) const {
        ChatInput input;
        input.messages = jinja::new_list(
            nullptr, jinja::Values(messages.begin(), messages.begin() + long(count)));
        input.tools = sample_.tools;
        input.documents = sample_.documents;
        input.add_generation_prompt = add_generation_prompt;
        input.more = sample_.more;
        return chat_.apply(input, rendering_);
    }

    [[nodiscard]] bool is_answer(size_t index) const {
        return index >= sample_.prompt_messages && role_of(messages_[index]) == "assistant";
    }

    // The marks that stand behind the text of the prompt's messages. Nothing: a prompt's end is not
    // known, or a mark overlaps another.
    [[nodiscard]] std::optional<Ranges> marked(const Ranges& marks) const {
        size_t from = 0;
        const auto is_answer_of_prompt = [&](const Value& message) {
            return role_of(message) == "assistant";
        };
        const auto prompt_end = messages_.begin() + long(sample_.prompt_messages);
        if (std::any_of(messages_.begin(), prompt_end, is_answer_of_prompt)) {
            const auto prompt = beginning(sample_.prompt_messages, false);
            if (!prompt) return std::nullopt;
            from = *prompt;
        }
        Ranges ranges;
        size_t end = 0;
        for (const TextRange& mark : marks) {
            if (mark.begin_bytes < end) return std::nullopt;
            end = mark.end_bytes;
            if (mark.begin_bytes >= from) ranges.push_back(mark);
        }
        return ranges;
    }

    // The length of the text of the first COUNT messages when the whole begins with it.
    [[nodiscard]] std::optional<size_t> beginning(size_t count, bool add_generation_prompt) const {
        if (count == messages_.size()) return text_.size();
        try {
            const std::string text = rendered(messages_, count, add_generation_prompt).text;
            if (text_.starts_with(text)) return text.size();
        } catch (const Error&) {
            // A template may refuse a conversation that ends here: not this way, then.
        }
        return std::nullopt;
    }

    // The answers one by one. BY is told how they were found.
    [[nodiscard]] std::optional<Ranges> by_message(AnswersBy& by) {
        by = AnswersBy::kPrefixes;
        Ranges ranges;
        size_t last_end = 0;
        for (size_t i = 0; i < messages_.size(); ++i) {
            if (!is_answer(i)) continue;
            std::optional<TextRange> range = by_prefix(i);
            if (!range || range->begin_bytes < last_end) {
                by = AnswersBy::kContents;
                range = by_content(i);
            }
            if (!range || range->begin_bytes < last_end) {
                reason_ = fmt::format(
                    "{}: where the answer of message {} stands in the text is not known: the "
                    "template renders it otherwise when more messages follow, and changes its "
                    "content; mark answers with {{% generation %}} in the template",
                    chat_.name(), i + 1);
                return std::nullopt;
            }
            ranges.push_back(*range);
            last_end = range->end_bytes;
        }
        return ranges;
    }

    [[nodiscard]] std::optional<TextRange> by_prefix(size_t index) const {
        const auto begin = index == 0 ? std::nullopt : beginning(index, true);
        const auto end = begin ? beginning(index + 1, false) : std::nullopt;
        if (!end || *end <= *begin) return std::nullopt;
        const std::string content = content_text(messages_[index]);
        const std::string_view answer = std::string_view(text_).substr(*begin, *end - *begin);
        // A prompt for another answer than this one may be a beginning of the text by chance.
        if (answer.find(final_part(content)) == std::string_view::npos) return std::nullopt;
        return TextRange{*begin, *end};
    }

    // What an answer says, without blanks at its ends and without the reasoning before it.
    [[nodiscard]] static std::string_view final_part(std::string_view content) {
        constexpr std::string_view kReasoningEnd = "</think>";
        const size_t at = content.rfind(kReasoningEnd);
        if (at != std::string_view::npos) content.remove_prefix(at + kReasoningEnd.size());
        return jinja::strip_blanks(content);
    }

    // The place of the content of message INDEX: where another text appears when the message says
    // that instead, and nothing else in the whole text changes.
    [[nodiscard]] std::optional<TextRange> by_content(size_t index) const {
        constexpr std::string_view kOther = "\uE0F1another answer\uE0F2";
        const Value* content = jinja::find_key(messages_[index].dict(), "content");
        if (content == nullptr || !content->is(Kind::kText)) return std::nullopt;
        const std::string& said = content->text();
        const std::string_view part = final_part(said);
        if (part.empty() || text_.find(kOther) != std::string::npos) return std::nullopt;
        const size_t part_begin = size_t(part.data() - said.data());
        std::string changed = said;
        changed.replace(part_begin, part.size(), kOther);
        jinja::Values messages = messages_;
        messages[index] = with_content(messages_[index], changed);
        std::string text;
        try {
            text = rendered(messages, messages.size(), false).text;
        } catch (const Error&) {
            return std::nullopt;
        }
        const size_t at = text.find(kOther);
        if (at == std::string::npos) return std::nullopt;
        if (text.replace(at, kOther.size(), part) != text_) return std::nullopt;
        const std::string_view lead = jinja::strip_blanks(
            std::string_view(said).substr(0, part_begin), {.left = true, .right = false});
        const bool has_lead = std::string_view(text_).substr(0, at).ends_with(lead);
        return TextRange{has_lead ? at - lead.size() : at, turn_end(index, part, at + part.size())};
    }

    [[nodiscard]] static Value with_content(const Value& message, const std::string& content) {
        std::vector<jinja::Entry> entries = message.dict().entries;
        for (auto& [key, value] : entries)
            if (key.is(Kind::kText) && key.text() == "content")
                value = jinja::new_text(nullptr, content);
        return jinja::new_dict(nullptr, std::move(entries));
    }

    // Where the turn of message INDEX ends, whose content PART ends at END: behind what stands
    // behind it when the message is the last one, if the same follows here.
    [[nodiscard]] size_t turn_end(size_t index, std::string_view part, size_t end) const {
        std::string alone;
        try {
            alone = rendered(messages_, index + 1, false).text;
        } catch (const Error&) {
            return end;
        }
        const size_t at = alone.rfind(part);
        if (at == std::string::npos) return end;
        const std::string_view tail = std::string_view(alone).substr(at + part.size());
        return std::string_view(text_).substr(end).starts_with(tail) ? end + tail.size() : end;
    }

    const ChatSample& sample_;
    const ChatTemplate& chat_;
    const jinja::Values& messages_;
    const TemplateOptions& rendering_;
    std::string text_;
    std::string reason_;
};

}  // namespace

const char* answers_by_name(AnswersBy by) {
    switch (by) {
        case AnswersBy::kPlainForm:
            return "plain form";
        case AnswersBy::kMarks:
            return "marks";
        case AnswersBy::kPrefixes:
            return "prefixes";
        case AnswersBy::kContents:
            return "contents";
    }
    return "";
}

SegmentedText render_segments(const ChatSample& sample, const ChatTemplate* chat,
                              const SegmentOptions& options) {
    const bool is_rejected =
        sample.format == ChatFormat::kPreference && options.side == PreferenceSide::kRejected;
    const jinja::Values& messages = is_rejected ? sample.rejected : sample.messages;
    if (chat == nullptr || sample.format == ChatFormat::kText) return plain_form(sample, messages);
    return AnswerFinder(sample, *chat, messages, options.rendering).run();
}

}  // namespace dslaunch::tokens
