#include "tokens/rows/encode_sample.h"

#include "base/error.h"

namespace dslaunch::tokens {

EncodedSample encode_sample(const ChatSample& sample, const EncodeRules& rules,
                            PreferenceSide side) {
    EncodedSample made;
    try {
        const bool is_text = sample.format == ChatFormat::kText;
        const ChatTemplate* chat = rules.chat == nullptr || is_text
                                       ? nullptr
                                       : &rules.chat->choose(!sample.tools.is(jinja::Kind::kNone));
        const SegmentedText text = render_segments(sample, chat, {side, {}});
        if (!text.ok()) return {{}, text.reason};
        bool is_first = true;
        for (const TextSegment& segment : text.segments) {
            // A template writes the special tokens itself.
            const EncodeOptions options{.add_special_tokens = is_first && chat == nullptr};
            is_first = false;
            const std::vector<int32_t> tokens = rules.tokenizer->encode(segment.text, options);
            made.document.tokens.insert(made.document.tokens.end(), tokens.begin(), tokens.end());
            made.document.is_learned.insert(made.document.is_learned.end(), tokens.size(),
                                            segment.is_answer || rules.learns_all);
        }
        if (chat == nullptr && rules.end_token) {
            made.document.tokens.push_back(*rules.end_token);
            made.document.is_learned.push_back(true);
        }
        if (made.document.tokens.size() < 2) made.reason = "has fewer than two tokens";
    } catch (const Error& error) {
        made.reason = error.what();
    }
    return made;
}

}  // namespace dslaunch::tokens
