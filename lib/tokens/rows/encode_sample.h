// A sample of training text as tokens, each of which is learned or only read. Data path:
// chat_line.h
// -> segments.h -> [here] -> row_packer.h. Pure; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tokens/chat/segments.h"
#include "tokens/template/template_files.h"
#include "tokens/tokenizer/tokenizer.h"

namespace dslaunch::tokens {

struct TokenDocument {
    std::vector<int32_t> tokens;
    std::vector<bool> is_learned;  // of each token: the model is to say it
};

struct EncodeRules {
    const Tokenizer* tokenizer = nullptr;
    const ChatTemplates* chat = nullptr;  // null: the plain forms
    std::optional<int32_t> end_token;     // behind what no template has ended
    bool learns_all = false;              // questions too, not the answers alone
};

struct [[nodiscard]] EncodedSample {
    TokenDocument document;
    std::string reason;  // why there is none; empty: there is one
};

// Segments are encoded one by one: an answer's first token is then the one that a model is asked
// for behind its prompt.
EncodedSample encode_sample(const ChatSample& sample, const EncodeRules& rules,
                            PreferenceSide side = PreferenceSide::kChosen);

}  // namespace dslaunch::tokens
