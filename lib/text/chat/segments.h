// A sample's text, and what of it is learned (the assistant's answers) while the rest is only read.
// With a template, or in the plain forms of prompt and answer. Pure.
#pragma once

#include "text/chat/chat_line.h"
#include "text/chat_template/chat_template.h"

#include <optional>
#include <string>
#include <vector>

namespace dslaunch::text {

// A sample's text, and the ranges of it that are learned: in order, none of them empty, no two
// overlapping. Or the reason why there are none.
struct [[nodiscard]] SegmentedText {
    std::string text;
    std::vector<TextRange> answers;
    // The first answer begins here, and the text up to it is what a model is asked with for it.
    std::optional<size_t> prompt_bytes;
    bool has_marks = false;  // the answers are the template's marks
    std::string reason;
    [[nodiscard]] bool ok() const { return reason.empty(); }
};

enum class PreferenceSide { kChosen, kRejected };

// Returns the conversation of SAMPLE with the answer of SIDE, if it is a pair.
[[nodiscard]] const jinja::Values& messages_of_side(const ChatSample& sample, PreferenceSide side);

struct SegmentOptions {
    PreferenceSide side = PreferenceSide::kChosen;  // of a kPreference sample
    TemplateOptions rendering;
};

// CHAT == nullptr: the plain forms, which samples of messages do not have: the prompt and the
// answer one after the other, Alpaca's prompt around an instruction, a system text and an empty
// line before all. A kText sample is its text, with a template or without, and all of it is an
// answer.
//
// With a template the answers are its marks, if it has any and they have places in the text, but
// not those of a kPreference sample, of which all is compared that follows the prompt. Else, for
// each message of the assistant, what the template's loops print for it, without the prompt for an
// answer that it begins with, and with what ends its turn. Where a template has no such loop:
//   the text between that of the messages before it, with the prompt for an answer behind them, and
//   that of the messages up to it, if each is a beginning of the whole text;
//   else its content without the reasoning before it, where another text would stand if the message
//   said that, with the reasoning if that stands right before it and with what ends its turn. Such
//   a content is a text, and not empty.
// An empty block of reasoning that the message does not hold is the template's: it is not learned.
// A mark, or an answer, of the sample's prompt does not count.
SegmentedText render_segments(const ChatSample& sample, const ChatTemplate* chat,
                              const SegmentOptions& options = {});

}  // namespace dslaunch::text
