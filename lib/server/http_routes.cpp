#include "server/http_routes.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <memory>
#include <mutex>
#include <new>
#include <random>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "base/text/json.h"
#include "server/api_reply.h"
#include "server/api_request.h"
#include "server/http/local_names.h"

namespace dslaunch::server {

namespace {

// The memory, in bytes, that each byte of a text needs: while a template renders the text, while
// the text is encoded to tokens, and in a reply that repeats the text.
constexpr int64_t kRenderCost = 16, kEncodeCost = 80, kEchoCost = 16;
// The memory, in bytes, that each rendering needs for the template's own texts. It is added to the
// memory for the request's texts (kRenderCost).
constexpr int64_t kRenderBytesMin = int64_t{256} << 10;

constexpr size_t kShownMax = 200;  // bytes of a client's text in a message

std::string random_name(const char* prefix) {
    thread_local std::mt19937_64 random(std::random_device{}());
    return fmt::format("{}-{:016x}", prefix, random());
}

HttpReply reply_of(const ApiError& error) {
    HttpReply reply;
    reply.status = error.status;
    reply.body = error_json(error);
    return reply;
}

HttpReply reply_of(std::string body, const char* type = kJsonType) {
    HttpReply reply;
    reply.type = type;
    reply.body = std::move(body);
    return reply;
}

struct Route {
    std::string_view method, path;
};
constexpr std::string_view kModels = "/v1/models";
constexpr std::array<Route, 5> kRoutes = {{{"GET", "/health"},
                                           {"GET", "/metrics"},
                                           {"GET", "/v1/models"},
                                           {"POST", "/v1/completions"},
                                           {"POST", "/v1/chat/completions"}}};

// A path of llama.cpp's, ollama's or TGI's server, and the corresponding path here.
struct ForeignPlace {
    std::string_view path, here;
};
constexpr std::array<ForeignPlace, 6> kForeignPlaces = {
    {{"/generate", "POST /v1/completions"},
     {"/completion", "POST /v1/completions"},
     {"/api/generate", "POST /v1/completions"},
     {"/api/chat", "POST /v1/chat/completions"},
     {"/api/tags", "GET /v1/models"},
     {"/v1/responses", "POST /v1/chat/completions"}}};

// Returns "GET /health, GET /metrics, ...".
std::string all_routes() {
    std::vector<std::string> routes;
    for (const Route& route : kRoutes)
        routes.push_back(fmt::format("{} {}", route.method, route.path));
    return join(routes, ", ");
}

// Returns the route for PATH. A model under /v1/models/ has the route of /v1/models.
const Route* route_of(std::string_view path) {
    const bool is_model = path.starts_with(kModels) && path.substr(kModels.size()).starts_with('/');
    const auto route = std::ranges::find(kRoutes, is_model ? kModels : path, &Route::path);
    return route == kRoutes.end() ? nullptr : &*route;
}

// Lets web pages read the answers. Before this, refuse() has decided whether a page may send the
// request.
constexpr const char* kReadableFields = "Access-Control-Allow-Origin: *\r\n";
// The answer to a browser that asks whether a page may send a request (CORS). `*` does not include
// Authorization.
constexpr const char* kPreflightFields =
    "Access-Control-Allow-Origin: *\r\n"
    "Access-Control-Allow-Methods: GET, POST, OPTIONS\r\n"
    "Access-Control-Allow-Headers: Authorization, *\r\n"
    "Access-Control-Max-Age: 600\r\nAllow: GET, POST, OPTIONS\r\n";

// Returns TEXT, a part of a path, with `%2F` and the like decoded.
std::string unescaped(std::string_view text) {
    std::string plain;
    for (size_t i = 0; i < text.size(); ++i) {
        int code = 0;
        const bool is_code =
            text[i] == '%' && i + 2 < text.size() &&
            std::from_chars(&text[i + 1], &text[i + 3], code, 16).ptr == &text[i + 3];
        plain += is_code ? static_cast<char>(code) : text[i];
        i += is_code ? 2 : 0;
    }
    return plain;
}

// Returns COUNTS in the exposition format 0.0.4 of Prometheus.
std::string metrics_text(const ServiceCounts& counts) {
    std::string text;
    const auto add = [&](const char* name, const char* kind, const char* help, auto value) {
        text += fmt::format("# HELP dslaunch_{0} {2}\n# TYPE dslaunch_{0} {1}\ndslaunch_{0} {3}\n",
                            name, kind, help, value);
    };
    const decoder::EngineCounts& engine = counts.engine;
    add("requests_running", "gauge", "Texts that are being generated.", engine.running);
    add("requests_waiting", "gauge", "Texts that wait for a free slot or for memory.",
        engine.waiting);
    add("cache_pages_used", "gauge", "Pages of the KV cache that are in use.", engine.pages_used);
    add("cache_pages", "gauge", "Pages of the KV cache.", engine.pages);
    add("requests_total", "counter", "Requests for a text.", counts.requests);
    add("requests_refused_total", "counter", "Requests refused because the queue was full.",
        counts.refused);
    add("requests_cancelled_total", "counter", "Texts whose client disconnected.",
        counts.cancelled);
    add("requests_finished_total", "counter", "Texts that are complete.", counts.finished);
    add("prompt_tokens_total", "counter", "Prompt tokens that were processed.",
        engine.prompt_tokens);
    add("generated_tokens_total", "counter", "Tokens made.", engine.made_tokens);
    add("steps_total", "counter", "Batches computed.", engine.steps);
    add("preemptions_total", "counter",
        "Preemptions: a text gave its pages of the KV cache to an older text.", engine.preempted);
    add("step_seconds_total", "counter", "Seconds in which batches were computed.",
        counts.step_seconds);
    add("first_token_seconds_total", "counter",
        "Sum of the times from a request to its first token, in seconds.",
        counts.first_token_seconds);
    add("first_tokens_total", "counter", "Texts that have a first token.", counts.first_tokens);
    return text;
}

}  // namespace

HttpRoutes::HttpRoutes(TextService& service, const decoder::TextCodec& codec, ChatRenderer render,
                       ServerOptions options)
    : service_(service), codec_(codec), render_(std::move(render)), options_(std::move(options)) {}

HttpReply HttpRoutes::error(int status, std::string_view why) {
    return reply_of(ApiError{status, why.empty() ? "no memory is left" : std::string(why), ""});
}

std::optional<HttpReply> HttpRoutes::refuse(const RequestHead& head) {
    auto reply = refusal_of(head);
    const bool is_foreign = reply && reply->status == 403;
    if (reply && !is_foreign) reply->fields = kReadableFields;
    return reply;
}

std::optional<ApiError> HttpRoutes::misplaced(const RequestHead& head) const {
    const std::string place = fmt::format("{} {}", printable(head.method.substr(0, kShownMax)),
                                          printable(head.path.substr(0, kShownMax)));
    const Route* const route = route_of(head.path);
    if (route == nullptr) {
        const bool is_near = route_of("/v1" + std::string(head.path)) != nullptr;
        const auto foreign = std::ranges::find(kForeignPlaces, head.path, &ForeignPlace::path);
        return ApiError{404,
                        fmt::format("no such path: {}{}", place,
                                    is_near ? ": add /v1 to the address that the client uses"
                                    : foreign != kForeignPlaces.end()
                                        ? fmt::format("; use {}", foreign->here)
                                        : fmt::format("; the paths are {}", all_routes())),
                        ""};
    }
    const std::string_view method = head.method == "HEAD" ? "GET" : head.method;
    if (route->method != method && method != "OPTIONS")
        return ApiError{405, fmt::format("{}: this path supports only {}", place, route->method),
                        ""};
    if (route->path != kModels || head.path == kModels) return std::nullopt;
    const std::string model = unescaped(head.path.substr(kModels.size() + 1));
    if (model == options_.model) return std::nullopt;
    return other_model(model, "");
}

ApiError HttpRoutes::other_model(std::string_view model, std::string_view advice) const {
    return {404,
            fmt::format("this server has no model `{}`, only `{}`{}",
                        printable(model.substr(0, kShownMax)), printable(options_.model), advice),
            "model"};
}

bool HttpRoutes::is_own_model(std::string_view name) const {
    const auto last = [](std::string_view path) { return lower(path.substr(path.rfind('/') + 1)); };
    while (name.ends_with('/')) name.remove_suffix(1);
    return name.empty() || last(name) == last(options_.model);
}

std::optional<HttpReply> HttpRoutes::refusal_of(const RequestHead& head) const {
    // Monitoring needs no key, and browsers send none when they ask what a page may do.
    const bool needs_key = head.path != "/health" && head.method != "OPTIONS";
    if (!options_.api_key.empty() && needs_key && !has_key(head))
        return reply_of(
            {401, "the API key is missing or wrong; send the header `Authorization: Bearer KEY`",
             ""});
    if (options_.api_key.empty())
        if (const auto error = foreign(head)) return reply_of(*error);
    if (const auto error = misplaced(head)) return reply_of(*error);
    // Web pages of other hosts can send other types of bodies without asking first.
    if (options_.api_key.empty() && head.content_type && !is_json_type(*head.content_type))
        return reply_of({415,
                         "send the body as Content-Type: application/json (with curl: -H "
                         "'Content-Type: application/json')",
                         ""});
    if (head.content_type && head.content_type->find("multipart/") != std::string_view::npos)
        return reply_of({415, "forms with files are not supported by this server", ""});
    // Compressed bodies are refused, because a few bytes could expand to more than all memory.
    if (head.content_encoding)
        return reply_of({415, "send the body uncompressed, without a Content-Encoding", ""});
    return std::nullopt;
}

bool HttpRoutes::has_key(const RequestHead& head) const {
    constexpr std::string_view kScheme = "bearer ";
    std::string_view given = head.authorization.value_or("");
    if (!equal_ignoring_case(given.substr(0, kScheme.size()), kScheme)) return false;
    given = trim(given.substr(kScheme.size()));
    const std::string_view wanted = options_.api_key;
    // Compares every byte, so that the time reveals nothing about the key.
    unsigned differs = given.size() == wanted.size() ? 0 : 1;
    for (size_t i = 0; i < given.size(); ++i)
        differs |= static_cast<unsigned char>(given[i]) ^
                   static_cast<unsigned char>(wanted[i % wanted.size()]);
    return differs == 0;
}

// Returns an error if a server without an API key must refuse the client. Such a server serves
// programs on this machine. It refuses web pages of other hosts that a browser on this machine
// shows.
std::optional<ApiError> HttpRoutes::foreign(const RequestHead& head) const {
    if (head.host && !is_local_host(*head.host))
        return ApiError{403,
                        "without an API key, only requests whose Host header names localhost are "
                        "served; start the server with --api-key-file to serve others",
                        ""};
    if (head.origin && !is_local_origin(*head.origin))
        return ApiError{403,
                        "without an API key, requests from web pages of other hosts are not "
                        "served; start the server with --api-key-file",
                        ""};
    return std::nullopt;
}

bool HttpRoutes::is_quick(const RequestHead& head) {
    return head.method != "POST";
}

HttpReply HttpRoutes::answer(HttpRequest& request, const ReplySink& client) {
    HttpReply reply = answer_of(request, client);
    reply.fields = request.head.method == "OPTIONS" ? kPreflightFields : kReadableFields;
    return reply;
}

HttpReply HttpRoutes::answer_of(HttpRequest& request, const ReplySink& client) {
    if (request.head.method == "OPTIONS") return reply_of("", "text/plain");
    const std::string_view path = request.head.path;
    if (path == "/health") return health();
    if (path == "/metrics")
        return reply_of(metrics_text(service_.counts()), "text/plain; version=0.0.4");
    if (path == kModels) return reply_of(models_json());
    if (path.starts_with(kModels)) {
        JsonWriter json;
        write_model(json);
        return reply_of(json.text());
    }
    try {
        return complete(path == "/v1/completions" ? ApiKind::kCompletion : ApiKind::kChat, request,
                        client);
    } catch (const Error& error) {
        const bool is_request =
            error.code() == ExitCode::kInput || error.code() == ExitCode::kUsage;
        return reply_of({is_request ? 400 : 500, error.what(), ""});
    }
}

HttpReply HttpRoutes::health() const {
    const std::string failure = service_.failure();
    return failure.empty() ? reply_of("{\"status\": \"ok\"}") : reply_of({503, failure, ""});
}

std::string HttpRoutes::models_json() const {
    JsonWriter json;
    json.begin_object().field("object", "list").key("data").begin_array();
    write_model(json);
    json.end_array().end_object();
    return json.text();
}

void HttpRoutes::write_model(JsonWriter& json) const {
    json.begin_object().field("id", options_.model).field("object", "model");
    json.field("created", 0).field("owned_by", "dslaunch");
    json.field("max_model_len", options_.context).end_object();
}

HttpReply HttpRoutes::complete(ApiKind kind, HttpRequest& http, const ReplySink& client) {
    auto parsed = parse_api_request(kind, std::move(http.body), options_.sampling, http.lease);
    if (const ApiError* error = std::get_if<ApiError>(&parsed)) return reply_of(*error);
    if (const std::string& model = std::get<ApiRequest>(parsed).model; !is_own_model(model))
        return reply_of(other_model(model, ": send this name, or leave `model` out"));
    if (kind == ApiKind::kChat && !render_)
        return reply_of({400, "this model has no chat template; use /v1/completions", "messages"});
    return answer_texts(std::get<ApiRequest>(std::move(parsed)), http.lease, client);
}

HttpReply HttpRoutes::answer_texts(ApiRequest request, MemoryLease& lease,
                                   const ReplySink& client) {
    const auto prompts = texts_of(request, lease);
    if (!prompts) return reply_of(short_of_memory());
    auto encoded = encode(*prompts, request.kind == ApiKind::kChat, lease);
    if (!encoded) return reply_of(short_of_memory());
    std::vector<std::vector<int32_t>> tokens = std::move(request.prompt_tokens);
    std::ranges::move(*encoded, std::back_inserter(tokens));
    if (options_.first_token)
        for (std::vector<int32_t>& prompt : tokens)
            if (prompt.empty()) prompt.push_back(*options_.first_token);
    const int64_t texts = std::ssize(tokens) * request.choices;
    if (texts > service_.texts_max())
        return reply_of({400,
                         fmt::format("{} prompts with n = {} are {} texts, but this server accepts "
                                     "only {} at once: request fewer",
                                     tokens.size(), request.choices, texts, service_.texts_max()),
                         "n"});
    ReplyUsage usage;
    for (const std::vector<int32_t>& prompt : tokens) usage.prompt_tokens += std::ssize(prompt);
    // Each choice has its own copy of the prompt's tokens. With echo, it also has a copy of the
    // prompt's text, and a copy of this text as JSON.
    int64_t cost = usage.prompt_tokens * int64_t{sizeof(int32_t)};
    for (const std::string& prompt : *prompts)
        cost += request.echo ? std::ssize(prompt) * kEchoCost : 0;
    if (!lease.grow(cost * request.choices)) return reply_of(short_of_memory());
    auto reply = std::make_shared<OpenReply>(service_, head_of(request.kind), usage, request.echo,
                                             static_cast<size_t>(texts));
    for (size_t i = 0; i < tokens.size(); ++i)
        for (int choice = 0; choice < request.choices; ++choice) {
            auto submitted = service_.submit(text_request(request, tokens[i], choice));
            if (const ApiError* error = std::get_if<ApiError>(&submitted)) return reply_of(*error);
            reply->add(std::get<TextService::Ticket>(std::move(submitted)),
                       i < prompts->size() ? (*prompts)[i] : "");
        }
    if (!request.stream) {
        const auto whole = reply->await_whole(client);
        // Sends an answer all the same, because a client that has closed only its half of the
        // connection may still read.
        if (!whole) return reply_of({499, "the client has closed the connection", ""});
        if (const ApiError* error = std::get_if<ApiError>(&*whole)) return reply_of(*error);
        return reply_of(std::get<std::string>(*whole));
    }
    HttpReply streamed;
    streamed.type = "text/event-stream";
    // All copies of the function share the reply, and its texts are cancelled when the last copy is
    // destroyed.
    streamed.stream = [reply, with_usage = request.stream_usage] {
        OpenReply::Events events = reply->next_events(with_usage);
        return HttpReply::Piece{std::move(events.text), events.last};
    };
    return streamed;
}

std::optional<std::vector<std::vector<int32_t>>> HttpRoutes::encode(
    const std::vector<std::string>& prompts, bool is_rendered, MemoryLease& lease) {
    constexpr size_t kLong = size_t{1} << 20;
    std::vector<std::vector<int32_t>> tokens;
    for (const std::string& prompt : prompts) {
        const int64_t before = lease.bytes();
        std::unique_lock lock(long_texts_, std::defer_lock);
        if (prompt.size() > kLong) lock.lock();
        if (!lease.grow(std::ssize(prompt) * kEncodeCost)) return std::nullopt;
        tokens.push_back(codec_.encode(prompt, is_rendered));
        lease.shrink_to(before + std::ssize(tokens.back()) * int64_t{sizeof(int32_t)});
    }
    return tokens;
}

std::optional<std::vector<std::string>> HttpRoutes::texts_of(ApiRequest& request,
                                                             MemoryLease& lease) const {
    if (request.kind == ApiKind::kCompletion) return std::move(request.prompts);
    const int64_t before = lease.bytes();
    const int64_t cost = kRenderBytesMin + before * kRenderCost;
    if (!lease.grow(cost)) return std::nullopt;
    std::vector<std::string> texts;
    constexpr int64_t kRoom = int64_t{8} << 20;
    texts.push_back(render_(request, std::max(cost, kRoom)));
    request.messages = request.tools = request.documents = request.template_kwargs = std::nullopt;
    request.document.reset();
    lease.shrink_to(std::ssize(texts.front()));
    return texts;
}

TextRequest HttpRoutes::text_request(const ApiRequest& request, const std::vector<int32_t>& prompt,
                                     int choice) const {
    TextRequest text;
    text.prompt = prompt;
    text.goes_on = request.kind == ApiKind::kCompletion || request.continues_last;
    text.tokens_max = tokens_max_of(request, std::ssize(prompt));
    text.sampling = request.sampling;
    if (!request.seed_given) text.sampling.seed = std::random_device{}();
    text.sampling.seed += static_cast<uint64_t>(choice);
    text.stops = request.stops.value_or(options_.stops);
    text.more_ends = request.more_ends;
    text.ignores_end = request.ignores_end;
    return text;
}

int64_t HttpRoutes::tokens_max_of(const ApiRequest& request, int64_t prompt_tokens) const {
    constexpr int64_t kTokensOfProtocol = 16;  // the protocol's default for a completion
    const int64_t room = std::max<int64_t>(options_.context - prompt_tokens, 1);
    const std::optional<int64_t> said =
        request.tokens_max ? request.tokens_max : options_.tokens_max;
    if (said) return std::min(*said, room);
    if (options_.length_max && *options_.length_max <= prompt_tokens)
        fail(ExitCode::kInput,
             "the prompt has {} tokens, but max_length in generation_config.json is {}, so no "
             "token can be generated: send max_tokens, which replaces max_length",
             prompt_tokens, *options_.length_max);
    if (options_.length_max) return std::min(*options_.length_max - prompt_tokens, room);
    return request.kind == ApiKind::kChat ? room : std::min(kTokensOfProtocol, room);
}

ReplyHead HttpRoutes::head_of(ApiKind kind) const {
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    return {kind, random_name(kind == ApiKind::kChat ? "chatcmpl" : "cmpl"), options_.model,
            std::chrono::duration_cast<std::chrono::seconds>(now).count()};
}

}  // namespace dslaunch::server
