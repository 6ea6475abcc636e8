// A row of training text: one line of a .jsonl file -> the sample it holds, in any of the usual
// forms. A column that would change what is learned is read, or the row is refused. Pure: a bad
// line is a reason, not an error.
#pragma once

#include "text/chat/chat_sample.h"

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace dslaunch::text {

// A sample, or the reason why there is no sample: the fault and its place in the line.
struct [[nodiscard]] ChatLine {
    std::optional<ChatSample> sample;
    std::vector<std::string> unread;  // the columns that the sample does not need
    std::string reason;
};

// The longest line that is read.
constexpr size_t kChatLineBytesMax = size_t{64} << 20;

// Returns the sample of LINE, or a reason. Throws nothing but out of memory.
ChatLine parse_chat_line(std::string_view line);

}  // namespace dslaunch::text
