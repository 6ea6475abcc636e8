// A sample's text, cut into what is learned (the assistant's answers) and what is only read. With a
// template, or in the plain forms of prompt and answer. Pure.
#pragma once

#include "tokens/chat/chat_line.h"
#include "tokens/template/chat_template.h"

#include <string>
#include <vector>

namespace dslaunch::tokens {

struct TextSegment {
    std::string text;
    bool is_answer = false;
};

// How the answers were found.
enum class AnswersBy {
    kPlainForm,  // without a template
    kMarks,      // the template's `{% generation %}`
    kPrefixes,   // what the text grows by, from one message to the next
    kContents,   // where the answers' contents stand in the text
};
[[nodiscard]] const char* answers_by_name(AnswersBy by);

// Segments, none of them empty, whose texts in a row are the sample's text; or the reason why there
// are none.
struct [[nodiscard]] SegmentedText {
    std::vector<TextSegment> segments;
    AnswersBy by = AnswersBy::kPlainForm;
    std::string reason;
    [[nodiscard]] bool ok() const { return reason.empty(); }
};

enum class PreferenceSide { kChosen, kRejected };

struct SegmentOptions {
    PreferenceSide side = PreferenceSide::kChosen;  // of a kPreference sample
    TemplateOptions rendering;
};

// CHAT == nullptr: the plain forms, which samples of messages do not have: the prompt and the
// answer one after the other, Alpaca's prompt around an instruction, a system text and an empty
// line before all. A kText sample is its text, with a template or without, and all of it is an
// answer.
//
// With a template the answers are, in this order:
//   its marks, if it has any and they have places in the text;
//   for each message of the assistant the text between that of the messages before it, with the
//   prompt for an answer behind them, and that of the messages up to it: its content and what ends
//   its turn. Each must be a beginning of the whole text;
//   else, as for a template that drops earlier reasoning: its content without the reasoning before
//   it, where another text would stand if the message said that, with the reasoning if that stands
//   right before it and with what ends its turn. Such a content is a text, and not empty.
// A mark, or an answer, of the sample's prompt does not count.
SegmentedText render_segments(const ChatSample& sample, const ChatTemplate* chat,
                              const SegmentOptions& options = {});

}  // namespace dslaunch::tokens
