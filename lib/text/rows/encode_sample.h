// A sample of training text as tokens, each of which is learned or only read. Data path:
// chat_line.h -> segments.h -> [here] -> row_packer.h. Pure; any thread.
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
    // The first one follows what no template has ended, unless one of them ends it already.
    std::vector<int32_t> end_tokens;
    bool makes_chats = false;  // of samples that go on, too, where there is a template
    bool learns_all = false;   // questions too, not the answers alone
};

struct [[nodiscard]] EncodedSample {
    TokenDocument document;
    // So many tokens at the beginning are those of the prompt of the first answer, where the text
    // begins with that: the tokens that a model is asked with, up to the first that the answer
    // changes.
    std::optional<size_t> prompt_tokens;
    // The part of the sample that its template does not write (lost_part.h); empty: there is none.
    std::string lost;
    std::string reason;  // why there is none; empty: there is one
};

// The tokens are those of the whole text. Learned are, of each answer, all that hold a byte of it:
// so a token that spans the border is learned. Of one that the template marks, those from the first
// that holds a byte of its first character to the first that holds one of its last character's, as
// transformers does. The first answer begins behind prompt_tokens, as TRL cuts prompts from
// completions. Where a template leaves the end of a turn to the message that follows, an end token
// right behind an answer is learned.
EncodedSample encode_sample(const ChatSample& sample, const EncodeRules& rules,
                            PreferenceSide side = PreferenceSide::kChosen);

// Lets the answers of a pair begin behind as many tokens, the fewer ones: so the likelihoods that
// are compared are those of texts behind one prompt.
void share_prompt(EncodedSample& chosen, EncodedSample& rejected);

}  // namespace dslaunch::text
