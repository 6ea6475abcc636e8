#include "serve/http_routes.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <iterator>
#include <memory>
#include <mutex>
#include <random>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "base/text/json.h"
#include "serve/api_request.h"
#include "serve/bounded_server.h"
#include "serve/metrics_text.h"
#include "serve/open_reply.h"

namespace dslaunch::serve {

namespace {

constexpr const char* kJson = "application/json";

std::string random_name(const char* prefix) {
    thread_local std::mt19937_64 random(std::random_device{}());
    return fmt::format("{}-{:016x}", prefix, random());
}

void answer(httplib::Response& response, const ApiError& error) {
    response.status = error.status;
    if (error.status == 429) response.set_header("Retry-After", "1");
    response.set_content(error_json(error), kJson);
}

ApiError error_of(const std::exception_ptr& error) {
    try {
        std::rethrow_exception(error);
    } catch (const Error& known) {
        const bool is_request =
            known.code() == ExitCode::kInput || known.code() == ExitCode::kUsage;
        return {is_request ? 400 : 500, known.what(), ""};
    } catch (const std::exception& other) {
        return {500, other.what(), ""};
    }
}

std::string words_of(int status, const httplib::Request& request) {
    if (status == 404)
        return fmt::format("no such place: {} {}", printable(request.method),
                           printable(request.path));
    if (status == 413) return "the body is too large";
    if (status == 400) return "the request is no HTTP, not whole, or its chunks are too large";
    return fmt::format("HTTP {}", status);
}

}  // namespace

HttpRoutes::HttpRoutes(TextService& service, const infer::TextCodec& codec, ChatRenderer render,
                       ServerOptions options)
    : service_(service), codec_(codec), render_(std::move(render)), options_(std::move(options)) {}

void HttpRoutes::add_to(httplib::Server& server) {
    server.set_payload_max_length(static_cast<size_t>(options_.body_bytes_max));
    server.set_pre_routing_handler([this](const Request& request, Response& response) {
        if (!is_allowed(request)) {
            answer(response, {401, "no API key, or a wrong one, in the header Authorization", ""});
        } else if (request.is_multipart_form_data()) {
            answer(response, {415, "a form with files is nothing that is served here", ""});
        } else if (request.has_header("Content-Encoding")) {
            // A few bytes could become all of the memory.
            answer(response, {415, "send the body as it is, without a Content-Encoding", ""});
        } else {
            return httplib::Server::HandlerResponse::Unhandled;
        }
        return httplib::Server::HandlerResponse::Handled;
    });
    server.set_error_handler([](const Request& request, Response& response) {
        // An error is told whole: the library would cut it to the parts that a bad header asked
        // for. The request is its own, and not const.
        const_cast<Request&>(request).ranges.clear();
        if (!response.body.empty()) return;
        const int status = response.status;
        answer(response, {status, words_of(status, request), ""});
    });
    server.set_exception_handler(
        [](const Request&, Response& response, const std::exception_ptr& error) {
            answer(response, error_of(error));
        });
    server.Get("/health", [this](const Request&, Response& response) {
        const std::string failure = service_.failure();
        if (!failure.empty()) return answer(response, {503, failure, ""});
        response.set_content("{\"status\": \"ok\"}", kJson);
    });
    server.Get("/metrics", [this](const Request&, Response& response) {
        response.set_content(metrics_text(service_.counts()), "text/plain; version=0.0.4");
    });
    server.Get("/v1/models", [this](const Request&, Response& response) {
        response.set_content(models_json(), kJson);
    });
    server.Post("/v1/completions", [this](const Request& request, Response& response) {
        complete(ApiKind::kCompletion, request, response);
    });
    server.Post("/v1/chat/completions", [this](const Request& request, Response& response) {
        complete(ApiKind::kChat, request, response);
    });
}

// Monitors need no key.
bool HttpRoutes::is_allowed(const Request& request) const {
    if (options_.api_key.empty() || request.path == "/health") return true;
    const std::string given = request.get_header_value("Authorization");
    const std::string wanted = "Bearer " + options_.api_key;
    // Every byte is compared: the time tells nothing of the key.
    unsigned differs = given.size() == wanted.size() ? 0 : 1;
    for (size_t i = 0; i < given.size(); ++i)
        differs |= static_cast<unsigned char>(given[i]) ^
                   static_cast<unsigned char>(wanted[i % wanted.size()]);
    return differs == 0;
}

std::string HttpRoutes::models_json() const {
    JsonWriter json;
    json.begin_object().field("object", "list").key("data").begin_array().begin_object();
    json.field("id", options_.model).field("object", "model");
    json.field("created", 0).field("owned_by", "dslaunch");
    json.field("max_model_len", options_.context);
    json.end_object().end_array().end_object();
    return json.text();
}

void HttpRoutes::complete(ApiKind kind, const Request& http, Response& response) {
    const auto parsed = parse_api_request(kind, http.body, options_.sampling);
    if (const ApiError* error = std::get_if<ApiError>(&parsed)) return answer(response, *error);
    if (kind == ApiKind::kChat && !render_)
        return answer(response,
                      {400, "this model has no chat template; use /v1/completions", "messages"});
    answer_texts(std::get<ApiRequest>(parsed), response);
}

void HttpRoutes::answer_texts(const ApiRequest& request, Response& response) {
    const std::vector<std::string> prompts = texts_of(request);
    std::vector<std::vector<int32_t>> tokens = request.prompt_tokens;
    std::ranges::move(encode(prompts, request.kind == ApiKind::kChat), std::back_inserter(tokens));
    const int64_t texts = std::ssize(tokens) * request.choices;
    if (texts > service_.texts_max())
        return answer(response,
                      {400,
                       fmt::format("{} prompts with n = {} are {} texts, and this server "
                                   "has room for {} at once: ask for fewer",
                                   tokens.size(), request.choices, texts, service_.texts_max()),
                       "n"});
    ReplyUsage usage;
    for (const std::vector<int32_t>& prompt : tokens) usage.prompt_tokens += std::ssize(prompt);
    auto reply = std::make_shared<OpenReply>(service_, head_of(request.kind), usage, request.echo);
    for (size_t i = 0; i < tokens.size(); ++i)
        for (int choice = 0; choice < request.choices; ++choice) {
            auto submitted = service_.submit(text_request(request, tokens[i], choice));
            if (const ApiError* error = std::get_if<ApiError>(&submitted))
                return answer(response, *error);
            reply->add(std::get<TextService::Ticket>(std::move(submitted)),
                       i < prompts.size() ? prompts[i] : "");
        }
    if (!request.stream) {
        const auto whole = reply->await_whole(BoundedServer::client_is_there);
        // A client that has closed its half of the connection may still read.
        if (!whole) return answer(response, {499, "the client has closed the connection", ""});
        if (const ApiError* error = std::get_if<ApiError>(&*whole)) return answer(response, *error);
        return response.set_content(std::get<std::string>(*whole), kJson);
    }
    response.set_header("Cache-Control", "no-cache");
    // The reply is shared by the response's callbacks; its texts are cancelled when the last goes.
    response.set_chunked_content_provider(
        "text/event-stream",
        [reply, with_usage = request.stream_usage](size_t, httplib::DataSink& sink) {
            const OpenReply::Events events = reply->next_events(with_usage);
            const bool is_there = events.text.empty()
                                      ? sink.is_writable()
                                      : sink.write(events.text.data(), events.text.size());
            if (is_there && events.is_last) sink.done();
            return is_there;
        });
}

std::vector<std::vector<int32_t>> HttpRoutes::encode(const std::vector<std::string>& prompts,
                                                     bool is_rendered) {
    constexpr size_t kLong = size_t{1} << 20;
    std::vector<std::vector<int32_t>> tokens;
    for (const std::string& prompt : prompts) {
        std::unique_lock lock(long_texts_, std::defer_lock);
        if (prompt.size() > kLong) lock.lock();
        tokens.push_back(codec_.encode(prompt, is_rendered));
    }
    return tokens;
}

std::vector<std::string> HttpRoutes::texts_of(const ApiRequest& request) const {
    if (request.kind == ApiKind::kCompletion) return request.prompts;
    return {render_(request.messages, request.tools)};
}

TextRequest HttpRoutes::text_request(const ApiRequest& request, const std::vector<int32_t>& prompt,
                                     int choice) const {
    const int64_t room = std::max<int64_t>(options_.context - std::ssize(prompt), 1);
    TextRequest text;
    text.prompt = prompt;
    text.tokens_max = std::min(request.tokens_max.value_or(room), room);
    text.sampling = request.sampling;
    if (!request.has_seed) text.sampling.seed = std::random_device{}();
    text.sampling.seed += static_cast<uint64_t>(choice);
    text.stops = request.stops;
    return text;
}

ReplyHead HttpRoutes::head_of(ApiKind kind) const {
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    return {kind, random_name(kind == ApiKind::kChat ? "chatcmpl" : "cmpl"), options_.model,
            std::chrono::duration_cast<std::chrono::seconds>(now).count()};
}

}  // namespace dslaunch::serve
