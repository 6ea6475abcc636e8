// A sample of training text as tokens, each learned or only read. Data path: chat_line.h ->
// segments.h -> [here] -> row_packer.h. Pure; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "text/chat/segments.h"
#include "text/chat_template/template_files.h"
#include "text/tokenizer/tokenizer.h"

namespace dslaunch::text {

struct TokenDocument {
    std::vector<int32_t> tokens;
    std::vector<bool> is_learned;  // of each token: the model is to say it
};

struct EncodeRules {
    const Tokenizer* tokenizer = nullptr;
    const ChatTemplates* chat = nullptr;  // null: the plain forms
    // The first one is added at an end that no template wrote, unless one of them is there already.
    std::vector<int32_t> end_tokens;
    bool makes_chats = false;  // of samples that go on, too, where there is a template
    bool learns_all = false;   // questions too, not the answers alone
};

struct [[nodiscard]] EncodedSample {
    TokenDocument document;
    // The number of first tokens that are the prompt of the first answer, where the text begins
    // with it: the tokens with which a model is asked, up to the first that the answer changes.
    std::optional<size_t> prompt_tokens;
    // The part of the sample that its template does not write (lost_part.h); empty: there is none.
    std::string lost;
    std::string reason;  // why there is no sample; empty: there is one
};

// Returns the tokens of the whole text. Of each answer all tokens are learned that hold a byte of
// it, so a token that spans the border is learned. Of an answer that the template marks, tokens are
// learned from the first that holds a byte of its first character to the first that holds a byte of
// its last character, as in transformers. The first answer begins after prompt_tokens, as TRL cuts
// prompts from completions. If a template leaves the end of a turn to the next message, an end
// token right after an answer is learned.
EncodedSample encode_sample(const ChatSample& sample, const EncodeRules& rules,
                            PreferenceSide side = PreferenceSide::kChosen);

// Lets both answers of a pair begin after the same number of tokens, the smaller one, so that the
// compared likelihoods have one prompt.
void share_prompt(EncodedSample& chosen, EncodedSample& rejected);

}  // namespace dslaunch::text
