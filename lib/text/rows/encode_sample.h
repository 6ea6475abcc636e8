// The tokens of a sample of training text. Each token is learned or only read. Data path:
// row_form.h -> segments.h -> [here] -> row_packer.h. Pure; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "text/chat/segments.h"
#include "text/chat_template/template_files.h"
#include "text/tokenizer/tokenizer.h"

namespace dslaunch::text {

// The tokens of one sample.
struct TokenDocument {
    std::vector<int32_t> tokens;
    std::vector<bool> is_learned;  // for each token: the model should learn to write it
};

// The settings that all samples of a file share.
struct EncodeRules {
    const Tokenizer* tokenizer = nullptr;
    const ChatTemplates* chat = nullptr;  // null if texts have the plain forms
    // Without a template, the first of these tokens is added at the end of the text, unless the
    // text already ends with one of them.
    std::vector<int32_t> end_tokens;
    bool makes_chats = false;  // use a template for samples with is_continued too
    bool learns_all = false;   // questions are learned too, not only answers
};

// The tokens of a sample, or the reason why there are none.
struct [[nodiscard]] EncodedSample {
    TokenDocument document;
    // The number of tokens in the prompt of the first answer, if the text begins with a prompt. If
    // the tokens of the prompt alone differ from the tokens of the whole text, the prompt ends
    // before the first difference.
    std::optional<size_t> prompt_tokens;
    // The part of the sample that its template does not write (lost_part.h), or "".
    std::string lost;
    std::string reason;  // why there is no sample; empty if there is one
};

// Returns the tokens of the whole text. A token is learned if it contains a byte of an answer, even
// if it also contains bytes outside the answer. If the template marks an answer, the last learned
// token is the first token that contains a byte of the answer's last character, as in transformers.
// The first answer begins after prompt_tokens tokens, as in TRL. Without marks, an end token
// directly after an answer is learned too, unless the answer contains an end token itself.
EncodedSample encode_sample(const ChatSample& sample, const EncodeRules& rules,
                            PreferenceSide side = PreferenceSide::kChosen);

// Makes both answers of a pair begin after the same number of tokens, so that the compared
// likelihoods have the same prompt. Uses the smaller of the two numbers.
void share_prompt(EncodedSample& chosen, EncodedSample& rejected);

}  // namespace dslaunch::text
