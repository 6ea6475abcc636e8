#include "server/api_reply.h"

#include <fmt/core.h>

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
    if (end != TextEnd::kStop && end != TextEnd::kLength) {
        json.null();
    } else {
        json.value(end == TextEnd::kStop ? "stop" : "length");
    }
}

void write_usage(JsonWriter& json, const ReplyUsage& usage) {
    json.key("usage").begin_object();
    json.field("prompt_tokens", usage.prompt_tokens).field("completion_tokens", usage.made_tokens);
    json.field("total_tokens", usage.prompt_tokens + usage.made_tokens).end_object();
}

std::string event(const std::string& json) {
    return fmt::format("data: {}\n\n", json);
}

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
        if (marks.is_first) json.field("role", "assistant");
        if (marks.is_first || !choice.text.empty()) json.field("content", choice.text);
        json.end_object();
    } else {
        json.field("text", choice.text);
    }
    json.key("logprobs").null();
    finish_reason(json, choice.end);
    json.end_object().end_array();
    if (marks.usage_follows) json.key("usage").null();
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

}  // namespace dslaunch::server
