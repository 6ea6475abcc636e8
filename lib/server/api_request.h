// Reads requests of OpenAI's completions and chat protocol from JSON. Returns the request, or why
// it cannot be served. Data path: HTTP body -> json_document.h -> [here] -> text_service.h. Pure.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "decoder/sample/sampler.h"
#include "server/http/request_budget.h"
#include "server/json/json_document.h"

namespace dslaunch::server {

// The path that a request was sent to.
enum class ApiKind { kCompletion, kChat };

// A request with its defaults filled in. Copies share the document.
struct ApiRequest {
    ApiKind kind = ApiKind::kCompletion;
    std::string model;  // the name that the client uses; any name is accepted
    // The prompts of a completion: either texts or lists of tokens.
    std::vector<std::string> prompts;
    std::vector<std::vector<int32_t>> prompt_tokens;
    // The inputs of the chat template, as views into `document`.
    std::optional<JsonView> messages, tools, documents, template_kwargs;
    std::string reasoning_effort;                  // a variable of the template; empty if not given
    bool begins_answer = true;                     // the text ends with the start of an answer
    bool continues_last = false;                   // the text ends with the last message's content
    std::shared_ptr<const JsonDocument> document;  // shared by copies of the request
    std::optional<int64_t> tokens_max;             // if not set, as many as fit in the context
    decoder::SamplingOptions sampling;
    bool seed_given = false;
    std::optional<std::vector<std::string>> stops;  // each ends the text, and is not part of it
    std::vector<int32_t> more_ends;                 // further tokens that end the text
    bool ignores_end = false;                       // the model's end tokens do not end the text
    int choices = 1;
    bool stream = false;
    bool stream_usage = false;  // the last event of a stream has the numbers of tokens
    bool echo = false;          // a completion's text begins with its prompt
};

// The reason why a request is not served, in the form of the protocol.
struct ApiError {
    int status = 400;
    std::string message;
    std::string parameter;  // the field at fault; empty if there is none
};

// Returns the error for a request that does not fit in the memory for requests.
[[nodiscard]] ApiError short_of_memory();

// Reads BODY into a request. Refuses unknown fields. Also refuses fields that this server does not
// support, unless they have their default values. DEFAULTS has the sampling options that apply
// where the request sets none. Charges LEASE for the request's memory; returns an error with status
// 503 if LEASE's budget is used up.
[[nodiscard]] std::variant<ApiRequest, ApiError> parse_api_request(
    ApiKind kind, std::string body, const decoder::SamplingOptions& defaults, MemoryLease& lease);

// Returns {"error": {…}}, the form that clients expect.
[[nodiscard]] std::string error_json(const ApiError& error);

}  // namespace dslaunch::server
