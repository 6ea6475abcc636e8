// The text that a chat template printed, and the parts of it that belong to each message.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace dslaunch::text {

struct TextRange {
    size_t begin_bytes = 0;
    size_t end_bytes = 0;
    bool operator==(const TextRange&) const = default;
};

// The text that a template printed for one of its messages, counted from 0.
struct MessageRange {
    size_t message = 0;
    TextRange range;
};

struct RenderedChat {
    std::string text;
    // For each element of the variable `messages` that is a dict: the range that loops over the
    // messages, or over their numbers, printed, where that has a place in the text; inner loops
    // before outer ones. Empty with continue_final_message.
    std::vector<MessageRange> by_message;
    // The ranges that the template marks with `{% generation %}` as the assistant's, in order.
    std::vector<TextRange> generated;
    // A mark stands in a macro, a `set` block or a filter: its place in the text is not known, and
    // `generated` is not all.
    bool has_lost_mark = false;
};

}  // namespace dslaunch::text
