#include "worker/text/end_tokens.h"

#include <fmt/core.h>

#include <algorithm>
#include <string_view>

#include "base/error.h"
#include "base/text.h"
#include "text/chat_template/values/json_text.h"

namespace dslaunch::worker {

namespace {

// Returns the special token that CHAT writes directly after an answer. Returns nullopt if it writes
// none, or if it refuses the conversation that is used for this test.
std::optional<int32_t> end_of_turn(const text::ChatTemplates& chat,
                                   const text::Tokenizer& tokenizer) {
    constexpr std::string_view kAnswer = "qz7answer";
    text::ChatInput input;
    input.messages = text::jinja::value_of_json(fmt::format(
        R"([{{"role": "user", "content": "q"}}, {{"role": "assistant", "content": "{}"}}])",
        kAnswer));
    try {
        const std::string text = chat.choose(false).apply(input).text;
        const size_t at = text.rfind(kAnswer);
        if (at == std::string::npos) return std::nullopt;
        const std::vector<int32_t> rest = tokenizer.encode(
            std::string_view(text).substr(at + kAnswer.size()), {.add_special_tokens = false});
        if (!rest.empty() && tokenizer.is_special(rest.front())) return rest.front();
    } catch (const Error&) {
        return std::nullopt;
    }
    return std::nullopt;
}

}  // namespace

EndTokens find_end_tokens(const std::string& folder, const storage::GenerationConfig& generation,
                          const storage::GenerationConfig& config,
                          const std::optional<text::Tokenizer>& tokenizer,
                          const std::optional<text::ChatTemplates>& chat) {
    if (!generation.eos_tokens.empty()) return {generation.eos_tokens, ""};
    EndTokens ends{config.eos_tokens, ""};
    if (!tokenizer) return ends;
    const auto add = [&](std::optional<int32_t> token, const char* source) {
        if (!token || std::ranges::find(ends.tokens, *token) != ends.tokens.end()) return;
        ends.tokens.push_back(*token);
        ends.source =
            fmt::format("`{}`, {}", printable(tokenizer->token_of(*token).value_or("")), source);
    };
    if (const auto name = text::special_token_of(folder, "eos_token"))
        add(tokenizer->id_of(*name), "the tokenizer's eos_token");
    if (ends.tokens.empty() && chat)
        add(end_of_turn(*chat, *tokenizer), "the end of a turn in the chat template");
    return ends;
}

}  // namespace dslaunch::worker
