#include "text/rows/encode_sample.h"

#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "text/chat/chat_messages.h"
#include "text/chat_template/values/compare.h"
#include "text/chat_template/values/members.h"
#include "text/rows/lost_part.h"

namespace dslaunch::text {
namespace {

// Adds the first of ENDS, unless DOCUMENT already ends with one of ENDS.
void add_end(TokenDocument& document, const std::vector<int32_t>& ends) {
    if (ends.empty()) return;
    if (!document.tokens.empty() && std::ranges::count(ends, document.tokens.back()) > 0) return;
    document.tokens.push_back(ends.front());
    document.is_learned.push_back(true);
}

struct TokenRange {
    size_t begin = 0, end = 0;
};

// Returns the tokens of RANGE. Looks only at tokens from number FROM on. If RANGE's last character
// has several tokens and FIRST_OF_LAST is true, includes only the first of these tokens.
TokenRange tokens_of(const EncodedText& encoded, TextRange range, size_t from, bool first_of_last) {
    const std::vector<TokenSpan>& spans = encoded.spans;
    TokenRange found{from, from};
    while (found.begin < spans.size() && spans[found.begin].end_bytes <= range.begin_bytes)
        ++found.begin;
    found.end = found.begin;
    while (found.end < spans.size() && spans[found.end].end_bytes < range.end_bytes) ++found.end;
    const auto is_in = [&](size_t i) {
        return i < spans.size() && spans[i].begin_bytes < range.end_bytes;
    };
    if (is_in(found.end)) ++found.end;
    while (!first_of_last && is_in(found.end)) ++found.end;
    // Tokens that the tokenizer adds at the end of the range are included. They cover no text.
    while (found.end < spans.size() && spans[found.end].begin_bytes == range.end_bytes &&
           spans[found.end].end_bytes == range.end_bytes)
        ++found.end;
    return found;
}

bool holds(const std::vector<int32_t>& ids, int32_t id) {
    return std::ranges::find(ids, id) != ids.end();
}

// Stores the tokens of ENCODED in MADE, and marks the tokens that training learns.
void mark_answers(EncodedSample& made, const EncodedText& encoded, const SegmentedText& text,
                  const EncodeRules& rules, EncodeOptions options) {
    TokenDocument& document = made.document;
    document.tokens = encoded.ids;
    document.is_learned.assign(encoded.ids.size(), rules.learns_all);
    size_t from = 0;
    for (const TextRange& answer : text.answers) {
        TokenRange range = tokens_of(encoded, answer, from, text.has_marks);
        if (&answer == &text.answers.front() && text.prompt_bytes) {
            const std::vector<int32_t> prompt = rules.tokenizer->encode(
                std::string_view(text.text).substr(0, *text.prompt_bytes), options);
            range.begin = static_cast<size_t>(std::ranges::mismatch(prompt, encoded.ids).in1 -
                                              prompt.begin());
            made.prompt_tokens = range.begin;
        }
        const auto is_end = [&](int32_t id) { return holds(rules.end_tokens, id); };
        const auto at = [&](size_t i) { return encoded.ids.begin() + std::ptrdiff_t(i); };
        const bool follows = range.end < encoded.ids.size() && is_end(encoded.ids[range.end]);
        if (follows && !text.has_marks && std::none_of(at(range.begin), at(range.end), is_end))
            ++range.end;
        std::fill(document.is_learned.begin() + std::ptrdiff_t(range.begin),
                  document.is_learned.begin() + std::ptrdiff_t(std::max(range.begin, range.end)),
                  true);
        // A token may contain the end of one answer and the beginning of the next.
        from = range.end > 0 ? range.end - 1 : 0;
    }
}

// Returns true if a learned answer has no text and only calls a tool.
bool has_bare_call(const ChatSample& sample, PreferenceSide side) {
    return std::ranges::any_of(messages_of_side(sample, side), [](const jinja::Value& message) {
        const jinja::Value* calls = jinja::member(message, "tool_calls");
        return calls != nullptr && jinja::is_true(*calls) && is_learned(message) &&
               trim(content_text(message)).empty();
    });
}

}  // namespace

EncodedSample encode_sample(const ChatSample& sample, const EncodeRules& rules,
                            PreferenceSide side) {
    EncodedSample made;
    try {
        const bool is_text =
            sample.format == ChatFormat::kText || (sample.is_continued && !rules.makes_chats);
        const ChatTemplate* chat =
            rules.chat == nullptr || is_text
                ? nullptr
                : &rules.chat->choose(!sample.tools.is(jinja::ValueKind::kNone));
        const SegmentedText text = render_segments(sample, chat, {side, {}});
        if (!text.ok()) {
            made.reason = text.reason;
            return made;
        }
        if (rules.learns_all && !std::ranges::all_of(sample.messages, is_learned))
            made.reason = "a message is marked as not learned, but --learn-all learns all messages";
        if (chat != nullptr) made.lost = lost_part(sample, *chat, side);
        if (made.lost == "tool_calls" && has_bare_call(sample, side))
            made.reason =
                "the answer is a tool call, but the chat template does not write tool calls";
        if (!made.reason.empty()) return made;
        // A template writes the special tokens itself.
        const EncodeOptions options{.add_special_tokens = chat == nullptr};
        mark_answers(made, rules.tokenizer->encode_spans(text.text, options), text, rules, options);
        if (chat == nullptr) add_end(made.document, rules.end_tokens);
        if (made.document.tokens.size() < 2) made.reason = "the sample has fewer than two tokens";
    } catch (const Error& error) {
        made.reason = error.what();
    }
    return made;
}

void share_prompt(EncodedSample& chosen, EncodedSample& rejected) {
    if (!chosen.prompt_tokens || !rejected.prompt_tokens) return;
    const size_t shared = std::min(*chosen.prompt_tokens, *rejected.prompt_tokens);
    for (EncodedSample* side : {&chosen, &rejected}) {
        std::fill(side->document.is_learned.begin() + std::ptrdiff_t(shared),
                  side->document.is_learned.begin() + std::ptrdiff_t(*side->prompt_tokens), true);
        side->prompt_tokens = shared;
    }
}

}  // namespace dslaunch::text
