#include "server/open_reply.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace dslaunch::server {

namespace {

// A client that has left is noticed after so long, whether tokens come or not.
constexpr std::chrono::milliseconds kLookInterval{100};

}  // namespace

OpenReply::~OpenReply() {
    for (const Open& open : open_)
        if (open.choice.end == TextEnd::kNone) service_.cancel(open.ticket);
}

void OpenReply::add(TextService::Ticket ticket, const std::string& prompt) {
    // There is room: from here on the text is cancelled whatever fails.
    open_.push_back(
        {std::move(ticket), {static_cast<int>(open_.size()), "", TextEnd::kNone}, true});
    if (echo_) open_.back().choice.text = prompt;
}

std::optional<std::variant<std::string, ApiError>> OpenReply::await_whole(const ReplySink& client) {
    std::vector<ReplyChoice> choices;
    TimePoint next_look = SystemClock().now() + kLookInterval;
    for (Open& open : open_) {
        while (open.choice.end == TextEnd::kNone) {
            const auto piece = open.ticket.channel->next(kLookInterval);
            if (piece) take(open, *piece);
            const TimePoint now = SystemClock().now();
            if (now < next_look) continue;
            if (!client.is_there()) return std::nullopt;
            next_look = now + kLookInterval;
        }
        choices.push_back(open.choice);
    }
    if (has_failed()) return failure();
    return whole_reply(head_, choices, usage_);
}

OpenReply::Events OpenReply::next_events(bool with_usage) {
    Events events{"", true};
    for (Open& open : open_) {
        if (open.choice.end != TextEnd::kNone) continue;
        // With several texts each is looked at in turn, the client after all of them.
        const auto piece =
            open.ticket.channel->next(Duration(kLookInterval) / static_cast<int64_t>(open_.size()));
        if (piece) {
            ReplyChoice part{open.choice.index, std::move(open.choice.text) + piece->text,
                             piece->end};
            open.choice.text.clear();
            take(open, {"", piece->tokens, piece->end});
            if (!has_failed(part.end))
                events.text +=
                    stream_event(head_, part, {std::exchange(open.is_first, false), with_usage});
        }
        events.is_last = events.is_last && open.choice.end != TextEnd::kNone;
    }
    if (!events.is_last) return events;
    if (has_failed()) {
        events.text += error_event(failure());
    } else if (with_usage) {
        events.text += usage_event(head_, usage_);
    }
    events.text += kStreamEnd;
    return events;
}

void OpenReply::take(Open& open, const TextPiece& piece) {
    open.choice.text += piece.text;
    open.choice.end = piece.end;
    usage_.made_tokens += piece.tokens;
}

bool OpenReply::has_failed() const {
    return std::ranges::any_of(open_, [](const Open& open) { return has_failed(open.choice.end); });
}

ApiError OpenReply::failure() const {
    const auto has_ended = [&](TextEnd end) {
        return std::ranges::any_of(open_, [&](const Open& open) { return open.choice.end == end; });
    };
    if (has_ended(TextEnd::kBroken)) return {500, decoder::kBrokenLogits, ""};
    if (has_ended(TextEnd::kNoMemory)) return {503, "no memory was left to go on", ""};
    return service_ends(service_.failure());
}

}  // namespace dslaunch::server
