// Turns a line of training text into the tokens and targets of a document, or of a pair of answers,
// with the tokenizer and the chat template of a model. Data path: sample_lines.h -> [here] ->
// row_maker.h.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "text/chat/row_form.h"
#include "text/chat_template/template_files.h"
#include "text/rows/encode_sample.h"
#include "text/tokenizer/tokenizer.h"
#include "worker/data/sample_lines.h"

namespace dslaunch::worker {

// The tokens of one line. A reason in `sample` says why the line is bad.
struct EncodedLine {
    text::EncodedSample sample;
    text::EncodedSample rejected;  // the rejected answer of a pair; else empty
    text::ChatFormat format = text::ChatFormat::kText;
    std::vector<std::string> unread;  // columns of the line that are not read
    bool is_continued = false;        // a plain text with its continuation
    bool has_empty_answer = false;

    // Returns true for a pair of answers; `sample` is then the chosen answer.
    [[nodiscard]] bool is_pair() const { return format == text::ChatFormat::kPreference; }
};

// The user's choices for the encoding of lines.
struct LineRules {
    bool learns_all = false;   // questions are learned too
    bool makes_chats = false;  // a prompt and a completion that are plain texts become a chat
    bool ends_texts = true;    // a text without a chat template gets the model's end token
};

// Encodes lines for the model in a folder. Const functions: any thread.
class LineEncoder {
  public:
    // Throws Error{kInput} if the files of the tokenizer or of the chat template in the folder
    // MODEL cannot be used.
    LineEncoder(const std::string& model, const LineRules& rules);
    LineEncoder(const LineEncoder&) = delete;
    LineEncoder& operator=(const LineEncoder&) = delete;

    // Returns the tokens of LINE, or the reason why it is bad.
    [[nodiscard]] EncodedLine encode(const SampleLine& line) const;
    // Returns the tokens that end a text. The tokenizer's end token comes first, as in TRL, then
    // the model's end tokens. Empty if neither the tokenizer nor the model names one.
    [[nodiscard]] const std::vector<int32_t>& ends() const { return ends_; }
    // Returns true if the model has a chat template.
    [[nodiscard]] bool has_chat_template() const { return chat_.has_value(); }

  private:
    text::Tokenizer tokenizer_;
    std::vector<int32_t> ends_;
    std::optional<text::ChatTemplates> chat_;
    text::EncodeRules rules_;
};

}  // namespace dslaunch::worker
