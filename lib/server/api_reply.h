// The replies of OpenAI's completions and chat protocol: whole ones and the events of a stream as
// JSON, and the texts that one request asked for until the last has ended or the client has left.
// Data path: text_service.h -> [here] -> http_routes.h. Threads: the one of the request's
// connection.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "server/api_request.h"
#include "server/http/http_message.h"
#include "server/text_service.h"

namespace dslaunch::server {

// The fields that all replies to one request share.
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
    bool first = false;          // of a chat: with the role
    bool usage_follows = false;  // its `usage` is null, as the protocol has it
};
// Returns one event of a stream with CHOICE's new text: "data: {…}\n\n".
[[nodiscard]] std::string stream_event(const ReplyHead& head, const ReplyChoice& choice,
                                       const EventMarks& marks);
// Returns the event that tells the numbers of tokens.
[[nodiscard]] std::string usage_event(const ReplyHead& head, const ReplyUsage& usage);
// Returns an event that says why the stream ends early.
[[nodiscard]] std::string error_event(const ApiError& error);
inline constexpr std::string_view kStreamEnd = "data: [DONE]\n\n";

class OpenReply {
  public:
    // SERVICE must outlive this. ECHO: texts begin with their prompts. TEXTS_MAX: the most texts.
    OpenReply(TextService& service, ReplyHead head, ReplyUsage usage, bool echo, size_t texts_max)
        : service_(service), head_(std::move(head)), usage_(usage), echo_(echo) {
        open_.reserve(texts_max);
    }
    OpenReply(const OpenReply&) = delete;
    OpenReply& operator=(const OpenReply&) = delete;
    // Cancels the texts that have not ended.
    ~OpenReply();

    void add(TextService::Ticket ticket, const std::string& prompt);

    // Returns the whole reply once all texts have ended, or why there is no reply; nothing if
    // CLIENT, which it looks at by the clock, has left.
    [[nodiscard]] std::optional<std::variant<std::string, ApiError>> await_whole(
        const ReplySink& client);

    struct Events {
        std::string text;  // of the protocol; empty: nothing came for a while
        bool last = false;
    };
    // Returns the events of the new text. WITH_USAGE: the last ones tell the numbers of tokens.
    [[nodiscard]] Events next_events(bool with_usage);

  private:
    struct Open {
        TextService::Ticket ticket;
        ReplyChoice choice;
        bool first = true;
    };

    void take(Open& open, const TextPiece& piece);
    [[nodiscard]] static bool has_failed(TextEnd end) {
        return end == TextEnd::kFailed || end == TextEnd::kBroken || end == TextEnd::kNoMemory;
    }
    [[nodiscard]] bool has_failed() const;
    [[nodiscard]] ApiError failure() const;

    TextService& service_;
    ReplyHead head_;
    ReplyUsage usage_;
    bool echo_;
    std::vector<Open> open_;
};

}  // namespace dslaunch::server
