// The text of a sample, and the parts of the text that are learned: the assistant's answers. The
// rest is only read. The text is made with a template, or in the plain forms of prompt and answer.
// Pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "text/chat/row_form.h"
#include "text/chat_template/chat_template.h"

namespace dslaunch::text {

// A sample's text and its learned ranges, or the reason why there are no ranges. The ranges are in
// order, are not empty and do not overlap.
struct [[nodiscard]] SegmentedText {
    std::string text;
    std::vector<TextRange> answers;
    // The offset at which the first answer begins. The text before this offset is the answer's
    // prompt.
    std::optional<size_t> prompt_bytes;
    bool has_marks = false;  // the answers are the ranges that the template marks
    std::string reason;
    [[nodiscard]] bool ok() const { return reason.empty(); }
};

// The two answers of a kPreference sample.
enum class PreferenceSide { kChosen, kRejected };

// Returns the conversation of SAMPLE. If SAMPLE is a pair, returns the conversation with the answer
// of SIDE.
[[nodiscard]] const jinja::Values& messages_of_side(const ChatSample& sample, PreferenceSide side);

// The answer to render, and how templates are rendered.
struct SegmentOptions {
    PreferenceSide side = PreferenceSide::kChosen;  // of a kPreference sample
    TemplateOptions rendering;
};

// Returns SAMPLE's text and answers. If CHAT is nullptr, the text has one of the plain forms: the
// prompt followed by the answer, or Alpaca's prompt around an instruction. Samples of messages have
// no plain form. A system text, if there is one, comes first, followed by an empty line. A kText
// sample is its text, with a template or without, and all of it is an answer.
// If the template has marks whose places in the text are known, the answers are the marked ranges.
// A kPreference sample does not use the marks, because its answers are compared from the end of the
// prompt on. Without marks, each answer is the text that the template's loops print for a message
// of the assistant, without the prompt for an answer and with the end of the turn. If no loop
// prints such a text, the answer is found in one of two ways:
//   Two shorter texts are rendered: the messages before the answer with the prompt for an answer,
//   and the messages up to the answer. If the whole text begins with both, the answer is the text
//   between their ends.
//   Else a different content is rendered, to find the place of the content without its reasoning.
//   The answer is this content with the reasoning directly before it and the end of the turn. The
//   content must be a string that is not empty.
// If the message does not contain an empty block of reasoning but the text does, the block belongs
// to the template and is not learned. Marks and answers in the sample's prompt do not count.
SegmentedText render_segments(const ChatSample& sample, const ChatTemplate* chat,
                              const SegmentOptions& options = {});

}  // namespace dslaunch::text
