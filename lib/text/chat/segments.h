// A sample's text, and its parts that are learned (the assistant's answers) while the rest is only
// read. With a template, or in the plain forms of prompt and answer. Pure.
#pragma once

#include "text/chat/chat_line.h"
#include "text/chat_template/chat_template.h"

#include <optional>
#include <string>
#include <vector>

namespace dslaunch::text {

// A sample's text, and its ranges that are learned: in order, not empty, without overlaps. Or the
// reason why there are no ranges.
struct [[nodiscard]] SegmentedText {
    std::string text;
    std::vector<TextRange> answers;
    // The first answer begins here; a model is asked for it with the text up to here.
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

// Returns SAMPLE's text and answers. CHAT == nullptr: the plain forms, which samples of messages do
// not have: the prompt and the answer one after the other, Alpaca's prompt around an instruction, a
// system text and an empty line before all. A kText sample is its text, with a template or without,
// and all of it is an answer.
//
// With a template the answers are its marks, if it has any and they have places in the text, but
// not for a kPreference sample, which is compared from its prompt's end on. Else each answer is
// what the template's loops print for a message of the assistant, without the prompt for an answer
// that begins it, and with the end of its turn. Where a template has no such loop:
//   the text from the end of the messages before it, with the prompt for an answer, to the end of
//   the messages up to it, if the whole text begins with the texts of both;
//   else its content without the reasoning before it, at the place where another content would
//   stand, with the reasoning if that stands right before it and with the end of its turn. Such a
//   content is a text, and not empty.
// An empty block of reasoning that the message does not hold is the template's: it is not learned.
// A mark, or an answer, of the sample's prompt does not count.
SegmentedText render_segments(const ChatSample& sample, const ChatTemplate* chat,
                              const SegmentOptions& options = {});

}  // namespace dslaunch::text
