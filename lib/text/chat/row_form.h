// The conversion of one line of a .jsonl file, in any of the usual forms, to a sample of training
// text. If a column would change what is learned, it is read or the row is refused. Pure: an
// invalid line gives a reason, not an error.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/chat/chat_sample.h"

namespace dslaunch::text {

// A row needs at least one of these columns. Error messages show the list in this form.
inline constexpr std::string_view kReadColumns =
    "text; messages; conversations; a question (instruction, prompt, question, query, problem or "
    "input) and its answer (output, response, completion, answer or solution); chosen and rejected";

// A sample, or the reason why there is none. The reason names the fault and its place in the line.
struct [[nodiscard]] ParsedRow {
    std::optional<ChatSample> sample;
    std::vector<std::string> unread;  // the columns that the sample does not need
    std::string reason;
};

// The size of the longest line that is read.
constexpr size_t kRowBytesMax = size_t{64} << 20;

// Returns the sample of LINE, or a reason. Throws only if memory runs out.
ParsedRow parse_row(std::string_view line);

}  // namespace dslaunch::text
