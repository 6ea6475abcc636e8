// The requests of OpenAI's completions and chat protocol, read from JSON: the request, or why it
// cannot be served. Data path: HTTP body -> json_document.h -> [here] -> text_service.h. Pure.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "decoder/sample/sampler.h"
#include "server/http/memory_account.h"
#include "server/json/json_document.h"

namespace dslaunch::server {

enum class ApiKind { kCompletion, kChat };

struct ApiRequest {
    ApiKind kind = ApiKind::kCompletion;
    std::string model;  // as the client calls it; any name will do
    // The prompts of a completion: texts, or else texts as tokens.
    std::vector<std::string> prompts;
    std::vector<std::vector<int32_t>> prompt_tokens;
    // The template's input for a chat, as values of `document`.
    std::optional<JsonView> messages, tools, documents, template_kwargs;
    std::string reasoning_effort;  // a variable of the template too; empty: not said
    bool begins_answer = true;     // the text ends with the start of an answer
    bool continues_last = false;   // or at the end of the last message's content
    std::shared_ptr<const JsonDocument> document;  // shared by copies of the request
    std::optional<int64_t> tokens_max;             // nothing: as many as the context has room for
    decoder::SamplingOptions sampling;
    bool seed_given = false;
    std::optional<std::vector<std::string>> stops;  // each ends the text, and is not part of it
    std::vector<int32_t> more_ends;                 // tokens that end the text too
    bool ignores_end = false;                       // the model's own ones do not
    int choices = 1;
    bool stream = false;
    bool stream_usage = false;  // the last event of a stream tells the numbers of tokens
    bool echo = false;          // a completion's text begins with its prompt
};

// The reason why a request is not served, in the words of the protocol.
struct ApiError {
    int status = 400;
    std::string message;
    std::string parameter;  // the field of the request; empty: none
};

// Returns the error of a request for which the memory of requests has no room left.
[[nodiscard]] ApiError short_of_memory();

// Reads BODY. Refuses fields that the protocol does not know, and known ones that this server does
// not serve, unless they are at their defaults. DEFAULTS: sampling where the request is silent.
// LEASE pays for the request's memory; returns an error of 503 where its account is full.
[[nodiscard]] std::variant<ApiRequest, ApiError> parse_api_request(
    ApiKind kind, std::string body, const decoder::SamplingOptions& defaults, MemoryLease& lease);

// Returns {"error": {…}} as clients read it.
[[nodiscard]] std::string error_json(const ApiError& error);

}  // namespace dslaunch::server
