#include "server/api_reply.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>

#include "base/text/json.h"

namespace dslaunch::server {

namespace {

void begin_reply(JsonWriter& json, const ReplyHead& head, bool is_stream) {
    const bool is_chat = head.kind == ApiKind::kChat;
    json.begin_object().field("id", head.id);
    json.field("object", !is_chat    ? "text_completion"
                         : is_stream ? "chat.completion.chunk"
                                     : "chat.completion");
    json.field("created", head.created_s).field("model", head.model);
}

void finish_reason(JsonWriter& json, TextEnd end) {
    json.key("finish_reason");
    const char* const name = decoder::end_name(end);
    name == nullptr ? json.null() : json.value(name);
}

void write_usage(JsonWriter& json, const ReplyUsage& usage) {
    json.key("usage").begin_object();
    json.field("prompt_tokens", usage.prompt_tokens).field("completion_tokens", usage.made_tokens);
    json.field("total_tokens", usage.prompt_tokens + usage.made_tokens).end_object();
}

std::string event(const std::string& json) {
    return fmt::format("data: {}\n\n", json);
}

// The longest delay until the server notices that a client has left, whether tokens arrive or not.
constexpr std::chrono::milliseconds kLookInterval{100};

}  // namespace

std::string whole_reply(const ReplyHead& head, const std::vector<ReplyChoice>& choices,
                        const ReplyUsage& usage) {
    JsonWriter json;
    begin_reply(json, head, false);
    json.key("choices").begin_array();
    for (const ReplyChoice& choice : choices) {
        json.begin_object().field("index", choice.index);
        if (head.kind == ApiKind::kChat) {
            json.key("message").begin_object();
            json.field("role", "assistant").field("content", choice.text).end_object();
        } else {
            json.field("text", choice.text);
        }
        json.key("logprobs").null();
        finish_reason(json, choice.end);
        json.end_object();
    }
    json.end_array();
    write_usage(json, usage);
    json.end_object();
    return json.text();
}

std::string stream_event(const ReplyHead& head, const ReplyChoice& choice,
                         const EventMarks& marks) {
    JsonWriter json;
    begin_reply(json, head, true);
    json.key("choices").begin_array().begin_object().field("index", choice.index);
    if (head.kind == ApiKind::kChat) {
        json.key("delta").begin_object();
        if (marks.has_role) json.field("role", "assistant");
        if (marks.has_role || !choice.text.empty()) json.field("content", choice.text);
        json.end_object();
    } else {
        json.field("text", choice.text);
    }
    json.key("logprobs").null();
    finish_reason(json, choice.end);
    json.end_object().end_array();
    if (marks.has_null_usage) json.key("usage").null();
    json.end_object();
    return event(json.text());
}

std::string usage_event(const ReplyHead& head, const ReplyUsage& usage) {
    JsonWriter json;
    begin_reply(json, head, true);
    json.key("choices").begin_array().end_array();
    write_usage(json, usage);
    json.end_object();
    return event(json.text());
}

std::string error_event(const ApiError& error) {
    return event(error_json(error));
}

OpenReply::~OpenReply() {
    for (const Open& open : open_)
        if (open.choice.end == TextEnd::kNone) service_.cancel(open.ticket);
}

void OpenReply::add(TextService::Ticket ticket, const std::string& prompt) {
    // push_back() cannot fail here, because the vector has enough room. If anything fails after
    // this line, the destructor cancels the text.
    open_.push_back(
        {std::move(ticket), {static_cast<int>(open_.size()), "", TextEnd::kNone}, true});
    if (echo_) open_.back().choice.text = prompt;
}

std::optional<std::variant<std::string, ApiError>> OpenReply::await_whole(const ReplySink& client) {
    std::vector<ReplyChoice> choices;
    TimePoint next_look = SystemClock().now() + kLookInterval;
    for (Open& open : open_) {
        while (open.choice.end == TextEnd::kNone) {
            const auto piece = open.ticket->next(kLookInterval);
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
        // Waits for each of several texts in turn. Afterwards the caller checks whether the client
        // has left.
        const auto piece =
            open.ticket->next(Duration(kLookInterval) / static_cast<int64_t>(open_.size()));
        if (piece) {
            ReplyChoice part{open.choice.index, std::move(open.choice.text) + piece->text,
                             piece->end};
            open.choice.text.clear();
            take(open, {"", piece->tokens, piece->end});
            if (!has_failed(part.end))
                events.text +=
                    stream_event(head_, part, {std::exchange(open.first, false), with_usage});
        }
        events.last = events.last && open.choice.end != TextEnd::kNone;
    }
    if (!events.last) return events;
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
    if (has_ended(TextEnd::kNoMemory))
        return {503, "the server had no memory left to continue this text: try again later", ""};
    return service_ends(service_.failure());
}

}  // namespace dslaunch::server
