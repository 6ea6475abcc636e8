// The replies of OpenAI's completions and chat protocol as JSON, whole or as the events of a
// stream. Follows the texts of one request until the last one has ended or the client has left.
// Data path: text_service.h -> [here] -> http_routes.h. Threads: the thread of the request's
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

// The fields that are the same in all replies to one request.
struct ReplyHead {
    ApiKind kind = ApiKind::kCompletion;
    std::string id;         // "cmpl-…", "chatcmpl-…"
    std::string model;      // the server's name for the model
    int64_t created_s = 0;  // seconds since 1970
};

// The numbers of tokens that a reply reports.
struct ReplyUsage {
    int64_t prompt_tokens = 0;
    int64_t made_tokens = 0;
};

// One of the texts of a reply.
struct ReplyChoice {
    int index = 0;
    std::string text;
    TextEnd end = TextEnd::kNone;
};

// Returns the reply with all CHOICES: a JSON object.
[[nodiscard]] std::string whole_reply(const ReplyHead& head,
                                      const std::vector<ReplyChoice>& choices,
                                      const ReplyUsage& usage);

// Fields that an event has besides the text.
struct EventMarks {
    bool has_role = false;        // in a chat: the event has the role
    bool has_null_usage = false;  // the event's `usage` is null: a later event reports it
};
// Returns the event of a stream with the new text of CHOICE: "data: {…}\n\n".
[[nodiscard]] std::string stream_event(const ReplyHead& head, const ReplyChoice& choice,
                                       const EventMarks& marks);
// Returns the event that reports the numbers of tokens.
[[nodiscard]] std::string usage_event(const ReplyHead& head, const ReplyUsage& usage);
// Returns the event that reports why the stream ends early.
[[nodiscard]] std::string error_event(const ApiError& error);
inline constexpr std::string_view kStreamEnd = "data: [DONE]\n\n";

// The texts of one request, which the service is making.
class OpenReply {
  public:
    // SERVICE must outlive this object. With ECHO, each text begins with its prompt. TEXTS_MAX is
    // the largest number of texts.
    OpenReply(TextService& service, ReplyHead head, ReplyUsage usage, bool echo, size_t texts_max)
        : service_(service), head_(std::move(head)), usage_(usage), echo_(echo) {
        open_.reserve(texts_max);
    }
    OpenReply(const OpenReply&) = delete;
    OpenReply& operator=(const OpenReply&) = delete;
    // Cancels the texts that have not ended.
    ~OpenReply();

    // Adds the text of TICKET, which continues PROMPT. REQUIRES: fewer than TEXTS_MAX were added.
    void add(TextService::Ticket ticket, const std::string& prompt);

    // Waits until all texts have ended. Returns the whole reply, or the error. Checks CLIENT
    // regularly, and returns nothing if it has left.
    [[nodiscard]] std::optional<std::variant<std::string, ApiError>> await_whole(
        const ReplySink& client);

    // A part of a stream.
    struct Events {
        std::string text;  // events of the protocol; empty if no new text came for a while
        bool last = false;
    };
    // Returns the events for the text that has arrived since the last call. If WITH_USAGE, the last
    // event reports the numbers of tokens.
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
