// The replies of OpenAI's completions and chat protocol as JSON: whole ones, and the events of a
// stream. Data path: text_service.h -> [here] -> HTTP. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "server/api_request.h"
#include "server/text_service.h"

namespace dslaunch::server {

// What all replies to one request have in common.
struct ReplyHead {
    ApiKind kind = ApiKind::kCompletion;
    std::string id;         // "cmpl-…", "chatcmpl-…"
    std::string model;      // as the server calls it
    int64_t created_s = 0;  // since 1970
};

struct ReplyUsage {
    int64_t prompt_tokens = 0;
    int64_t made_tokens = 0;
};

struct ReplyChoice {
    int index = 0;
    std::string text;
    TextEnd end = TextEnd::kNone;
};

[[nodiscard]] std::string whole_reply(const ReplyHead& head,
                                      const std::vector<ReplyChoice>& choices,
                                      const ReplyUsage& usage);

struct EventMarks {
    bool is_first = false;       // of a chat: with the role
    bool usage_follows = false;  // its `usage` is null, as the protocol has it
};
// One event of a stream with CHOICE's new text: "data: {…}\n\n".
[[nodiscard]] std::string stream_event(const ReplyHead& head, const ReplyChoice& choice,
                                       const EventMarks& marks);
// The event that tells the numbers of tokens.
[[nodiscard]] std::string usage_event(const ReplyHead& head, const ReplyUsage& usage);
// An event that says why the stream ends early.
[[nodiscard]] std::string error_event(const ApiError& error);
inline constexpr std::string_view kStreamEnd = "data: [DONE]\n\n";

}  // namespace dslaunch::server
