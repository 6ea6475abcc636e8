// The text that a chat template printed, and the parts of it that belong to each message.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace dslaunch::text {

// Bytes [begin_bytes, end_bytes) of a text.
struct TextRange {
    size_t begin_bytes = 0;
    size_t end_bytes = 0;
    bool operator==(const TextRange&) const = default;
};

// The text that a template printed for one message. Messages are counted from 0.
struct MessageRange {
    size_t message = 0;
    TextRange range;
};

// The printed text, and the ranges of it that are known.
struct RenderedChat {
    std::string text;
    // For each dict in the variable `messages`: the parts of the text that a loop over the
    // messages, or over their indices, has printed for this dict. Parts whose place in the text is
    // not known are left out. Inner loops come before outer ones. Empty if the option
    // continue_final_message is set.
    std::vector<MessageRange> by_message;
    // The ranges that the template marks with `{% generation %}` as text of the assistant, in
    // order.
    std::vector<TextRange> generated;
    // True if `{% generation %}` occurs in a macro, a `set` block or a filter. The place of the
    // marked text is then not known, so `generated` is not complete.
    bool has_lost_mark = false;
};

}  // namespace dslaunch::text
