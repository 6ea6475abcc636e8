// The texts that one request asked for, until the last has ended or the client has left: as one
// reply, or as events. Data path: text_service.h -> [here] -> http_routes.h. One thread: that of
// the request's connection.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/clock.h"
#include "server/api_reply.h"
#include "server/http/http_message.h"
#include "server/text_service.h"

namespace dslaunch::server {

class OpenReply {
  public:
    // SERVICE must outlive this. ECHO: texts begin with their prompts. TEXTS_MAX: that are added.
    OpenReply(TextService& service, ReplyHead head, ReplyUsage usage, bool echo, size_t texts_max)
        : service_(service), head_(std::move(head)), usage_(usage), echo_(echo) {
        open_.reserve(texts_max);
    }
    OpenReply(const OpenReply&) = delete;
    OpenReply& operator=(const OpenReply&) = delete;
    // Texts that have not ended are cancelled.
    ~OpenReply();

    void add(TextService::Ticket ticket, const std::string& prompt);

    // The whole reply once all texts have ended, or why there is none. Nothing: CLIENT, which is
    // looked at by the clock, has left.
    [[nodiscard]] std::optional<std::variant<std::string, ApiError>> await_whole(
        const ReplySink& client);

    struct Events {
        std::string text;  // of the protocol; empty: nothing came for a while
        bool is_last = false;
    };
    // The events of what has come. WITH_USAGE: the last ones tell the numbers of tokens.
    [[nodiscard]] Events next_events(bool with_usage);

  private:
    struct Open {
        TextService::Ticket ticket;
        ReplyChoice choice;
        bool is_first = true;
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
