// A sample's text, and its parts that are learned (the assistant's answers), while the rest is only
// read. The text is made with a template, or in the plain forms of prompt and answer. Pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "text/chat/chat_line.h"
#include "text/chat_template/chat_template.h"

namespace dslaunch::text {

// A sample's text and its learned ranges, which are in order, not empty and without overlaps; or
// the reason why there are no ranges.
struct [[nodiscard]] SegmentedText {
    std::string text;
    std::vector<TextRange> answers;
    // The offset at which the first answer begins: a model is asked for it with the text up to
    // here.
    std::optional<size_t> prompt_bytes;
    bool has_marks = false;  // the answers are the ranges that the template marks
    std::string reason;
    [[nodiscard]] bool ok() const { return reason.empty(); }
};

// The two answers of a kPreference sample.
enum class PreferenceSide { kChosen, kRejected };

// Returns the conversation of SAMPLE; if it is a pair, the one with the answer of SIDE.
[[nodiscard]] const jinja::Values& messages_of_side(const ChatSample& sample, PreferenceSide side);

// The answer to render, and how templates are rendered.
struct SegmentOptions {
    PreferenceSide side = PreferenceSide::kChosen;  // of a kPreference sample
    TemplateOptions rendering;
};

// Returns SAMPLE's text and answers. If CHAT is nullptr, it uses the plain forms, which samples of
// messages do not have: the prompt followed by the answer, or Alpaca's prompt around an
// instruction. A system text, if there is one, comes first, followed by an empty line. A kText
// sample is its text, with a template or without, and all of it is an answer.
//
// With a template, the answers are the ranges that it marks, if it has marks and they have known
// places in the text. A kPreference sample does not use the marks, because its answers are compared
// from the end of the prompt on. Without marks, each answer is the text that the template's loops
// print for a message of the assistant, without the prompt for an answer at its beginning, and with
// the end of its turn. If a template has no such loop, the answer is
//   the text from the end of the messages before it, with the prompt for an answer, to the end of
//   the messages up to it, if the whole text begins with the texts of both;
//   else its content without the reasoning, at the place where another content would appear; with
//   the reasoning if it is directly before that place, and with the end of its turn. This content
//   must be a string that is not empty.
// An empty block of reasoning that the message does not contain belongs to the template and is not
// learned. Marks and answers in the sample's prompt do not count.
SegmentedText render_segments(const ChatSample& sample, const ChatTemplate* chat,
                              const SegmentOptions& options = {});

}  // namespace dslaunch::text
