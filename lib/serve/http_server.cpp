#include "serve/http_server.h"

#include <fmt/core.h>
#include <httplib.h>

#include <chrono>
#include <condition_variable>
#include <list>
#include <mutex>
#include <random>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "base/text/json.h"
#include "serve/api_reply.h"
#include "serve/api_request.h"
#include "serve/metrics_text.h"

namespace dslaunch::serve {

namespace {

constexpr const char* kJson = "application/json";
// While no token comes, a client that has left is noticed after so long.
constexpr std::chrono::milliseconds kLookInterval{250};
constexpr int kBacklog = 1024;     // connections that wait to be accepted
constexpr time_t kReadMaxS = 30;   // for the whole of a request's next bytes
constexpr time_t kWriteMaxS = 30;  // for a client to take what it asked for

// Connections as tasks for a fixed number of threads. More connections than threads wait in the
// kernel's queue, which is bounded: accepting stops meanwhile.
class BoundedTasks final : public httplib::TaskQueue {
  public:
    explicit BoundedTasks(int threads) {
        for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { work(); });
    }

    void enqueue(std::function<void()> task) override {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return tasks_.size() < threads_.size() || ending_; });
        tasks_.push_back(std::move(task));
        changed_.notify_all();
    }

    void shutdown() override {
        {
            const std::lock_guard lock(mutex_);
            ending_ = true;
        }
        changed_.notify_all();
        for (std::thread& thread : threads_) thread.join();
    }

  private:
    void work() {
        for (;;) {
            std::function<void()> task;
            {
                std::unique_lock lock(mutex_);
                changed_.wait(lock, [&] { return !tasks_.empty() || ending_; });
                if (tasks_.empty()) return;
                task = std::move(tasks_.front());
                tasks_.pop_front();
            }
            changed_.notify_all();
            task();
        }
    }

    std::mutex mutex_;
    std::condition_variable changed_;
    std::list<std::function<void()>> tasks_;
    bool ending_ = false;
    std::vector<std::thread> threads_;
};

std::string random_name(const char* prefix) {
    thread_local std::mt19937_64 random(std::random_device{}());
    return fmt::format("{}-{:016x}", prefix, random());
}

void answer(httplib::Response& response, const ApiError& error) {
    response.status = error.status;
    if (error.status == 429) response.set_header("Retry-After", "1");
    response.set_content(error_json(error), kJson);
}

// The texts that one request asked for, until the last has ended or the client has left.
class OpenReply {
  public:
    OpenReply(TextService& service, ReplyHead head, ReplyUsage usage, bool echo)
        : service_(service), head_(std::move(head)), usage_(usage), echo_(echo) {}
    OpenReply(const OpenReply&) = delete;
    OpenReply& operator=(const OpenReply&) = delete;
    ~OpenReply() {
        for (const Open& open : open_)
            if (open.choice.end == TextEnd::kNone) service_.cancel(open.ticket.id);
    }

    void add(TextService::Ticket ticket, const std::string& prompt) {
        Open open{std::move(ticket), {static_cast<int>(open_.size()), "", TextEnd::kNone}, true};
        if (echo_) open.choice.text = prompt;
        open_.push_back(std::move(open));
    }

    // Writes the whole reply once all texts have ended. False: the client has left.
    bool write_whole(httplib::DataSink& sink) {
        for (Open& open : open_)
            while (open.choice.end == TextEnd::kNone) {
                const auto piece = open.ticket.channel->next(kLookInterval);
                if (!piece && !sink.is_writable()) return false;
                if (piece) take(open, *piece);
            }
        std::vector<ReplyChoice> choices;
        for (const Open& open : open_) choices.push_back(open.choice);
        const std::string reply =
            has_failed() ? error_json(failure()) : whole_reply(head_, choices, usage_);
        if (!sink.write(reply.data(), reply.size())) return false;
        sink.done();
        return true;
    }

    // Writes the events of what has come. False: the client has left.
    bool write_events(httplib::DataSink& sink, bool with_usage) {
        bool goes_on = false;
        std::string events;
        for (Open& open : open_) {
            if (open.choice.end != TextEnd::kNone) continue;
            // With several texts each is looked at in turn.
            const auto piece =
                open.ticket.channel->next(kLookInterval / static_cast<int64_t>(open_.size()));
            if (piece) {
                ReplyChoice part{open.choice.index, std::move(open.choice.text) + piece->text,
                                 piece->end};
                open.choice.text.clear();
                take(open, {"", piece->tokens, piece->end});
                if (part.end != TextEnd::kFailed)
                    events += stream_event(head_, part, std::exchange(open.is_first, false));
            }
            goes_on = goes_on || open.choice.end == TextEnd::kNone;
        }
        if (!goes_on) {
            if (has_failed()) events += error_event(failure());
            if (with_usage && !has_failed()) events += usage_event(head_, usage_);
            events += kStreamEnd;
        }
        if (events.empty() ? !sink.is_writable() : !sink.write(events.data(), events.size()))
            return false;
        if (!goes_on) sink.done();
        return true;
    }

  private:
    struct Open {
        TextService::Ticket ticket;
        ReplyChoice choice;
        bool is_first = true;
    };

    void take(Open& open, const TextPiece& piece) {
        open.choice.text += piece.text;
        open.choice.end = piece.end;
        usage_.made_tokens += piece.tokens;
    }
    [[nodiscard]] bool has_failed() const {
        return std::ranges::any_of(
            open_, [](const Open& open) { return open.choice.end == TextEnd::kFailed; });
    }
    [[nodiscard]] ApiError failure() const {
        return {503, fmt::format("the server ends: {}", service_.failure()), ""};
    }

    TextService& service_;
    ReplyHead head_;
    ReplyUsage usage_;
    bool echo_;
    std::vector<Open> open_;
};

}  // namespace

class HttpServer::Implementation {
  public:
    Implementation(TextService& service, const infer::TextCodec& codec, ChatRenderer render,
                   ServerOptions options)
        : service_(service),
          codec_(codec),
          render_(std::move(render)),
          options_(std::move(options)) {
        server_.new_task_queue = [this] { return new BoundedTasks(options_.connections_max); };
        server_.set_payload_max_length(static_cast<size_t>(options_.body_bytes_max));
        server_.set_read_timeout(kReadMaxS);
        server_.set_write_timeout(kWriteMaxS);
        server_.set_tcp_nodelay(true);
        // The library's own options would let a second server share the port.
        server_.set_socket_options([this](socket_t socket) {
            const int on = 1;
            ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
            socket_ = socket;
        });
        add_routes();
    }

    int bind() {
        int port = options_.port;
        const bool bound = port == 0 ? (port = server_.bind_to_any_port(options_.host)) > 0
                                     : server_.bind_to_port(options_.host, port);
        if (!bound)
            fail(ExitCode::kSetup,
                 "cannot listen at {}:{}: the port is taken (by another `dslaunch serve`?), or the "
                 "address is none of this machine's; give another --port or --host",
                 printable(options_.host), options_.port);
        // The library lets five connections wait to be accepted, and the system resets others of a
        // burst.
        if (::listen(socket_, kBacklog) != 0)
            fail(ExitCode::kSetup, "cannot listen: {}", errno_text(errno));
        return port;
    }
    void run() { server_.listen_after_bind(); }
    void stop() { server_.stop(); }

  private:
    using Request = httplib::Request;
    using Response = httplib::Response;

    void add_routes() {
        server_.set_pre_routing_handler([this](const Request& request, Response& response) {
            if (is_allowed(request)) return httplib::Server::HandlerResponse::Unhandled;
            answer(response, {401, "no API key, or a wrong one, in the header Authorization", ""});
            return httplib::Server::HandlerResponse::Handled;
        });
        server_.set_error_handler([](const Request& request, Response& response) {
            if (!response.body.empty()) return;
            const int status = response.status;
            answer(response, {status,
                              status == 404   ? fmt::format("no such place: {} {}", request.method,
                                                            printable(request.path))
                              : status == 413 ? "the body is too large"
                                              : fmt::format("HTTP {}", status),
                              ""});
        });
        server_.set_exception_handler(
            [](const Request&, Response& response, std::exception_ptr error) {
                answer(response, error_of(error));
            });
        server_.Get("/health", [this](const Request&, Response& response) {
            const std::string failure = service_.failure();
            response.status = failure.empty() ? 200 : 503;
            response.set_content(
                failure.empty() ? "{\"status\": \"ok\"}" : error_json({503, failure, ""}), kJson);
        });
        server_.Get("/metrics", [this](const Request&, Response& response) {
            response.set_content(metrics_text(service_.counts()), "text/plain; version=0.0.4");
        });
        server_.Get("/v1/models", [this](const Request&, Response& response) {
            response.set_content(models_json(), kJson);
        });
        server_.Post("/v1/completions", [this](const Request& request, Response& response) {
            serve(ApiKind::kCompletion, request, response);
        });
        server_.Post("/v1/chat/completions", [this](const Request& request, Response& response) {
            serve(ApiKind::kChat, request, response);
        });
    }

    // Monitors need no key.
    [[nodiscard]] bool is_allowed(const Request& request) const {
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

    static ApiError error_of(const std::exception_ptr& error) {
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

    [[nodiscard]] std::string models_json() const {
        JsonWriter json;
        json.begin_object().field("object", "list").key("data").begin_array().begin_object();
        json.field("id", options_.model).field("object", "model");
        json.field("created", 0).field("owned_by", "dslaunch");
        json.field("max_model_len", options_.context);
        json.end_object().end_array().end_object();
        return json.text();
    }

    void serve(ApiKind kind, const Request& http, Response& response) {
        auto parsed = parse_api_request(kind, http.body, options_.sampling);
        if (const ApiError* error = std::get_if<ApiError>(&parsed)) return answer(response, *error);
        const ApiRequest& request = std::get<ApiRequest>(parsed);
        if (kind == ApiKind::kChat && !render_)
            return answer(response, {400, "this model has no chat template; use /v1/completions",
                                     "messages"});
        const std::vector<std::string> prompts = texts_of(request);
        std::vector<std::vector<int32_t>> tokens = request.prompt_tokens;
        for (const std::string& prompt : prompts)
            tokens.push_back(codec_.encode(prompt, kind == ApiKind::kChat));
        ReplyUsage usage;
        for (const std::vector<int32_t>& prompt : tokens) usage.prompt_tokens += std::ssize(prompt);
        auto reply = std::make_shared<OpenReply>(service_, head_of(kind), usage, request.echo);
        for (size_t i = 0; i < tokens.size(); ++i)
            for (int choice = 0; choice < request.choices; ++choice) {
                auto ticket = service_.submit(text_request(request, tokens[i], choice));
                if (!ticket)
                    return answer(response, {429, "the queue is full: try again later", ""});
                reply->add(*std::move(ticket), i < prompts.size() ? prompts[i] : "");
            }
        // The reply is shared by the response's callbacks; its texts are cancelled when the last
        // goes.
        if (request.stream) {
            const bool with_usage = request.stream_usage;
            response.set_header("Cache-Control", "no-cache");
            response.set_chunked_content_provider(
                "text/event-stream", [reply, with_usage](size_t, httplib::DataSink& sink) {
                    return reply->write_events(sink, with_usage);
                });
        } else {
            response.set_chunked_content_provider(kJson, [reply](size_t, httplib::DataSink& sink) {
                return reply->write_whole(sink);
            });
        }
    }

    [[nodiscard]] std::vector<std::string> texts_of(const ApiRequest& request) const {
        if (request.kind == ApiKind::kCompletion) return request.prompts;
        return {render_(request.messages, request.tools)};
    }

    [[nodiscard]] TextRequest text_request(const ApiRequest& request,
                                           const std::vector<int32_t>& prompt, int choice) const {
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

    [[nodiscard]] ReplyHead head_of(ApiKind kind) const {
        const auto now = std::chrono::system_clock::now().time_since_epoch();
        return {kind, random_name(kind == ApiKind::kChat ? "chatcmpl" : "cmpl"), options_.model,
                std::chrono::duration_cast<std::chrono::seconds>(now).count()};
    }

    TextService& service_;
    const infer::TextCodec& codec_;
    ChatRenderer render_;
    ServerOptions options_;
    socket_t socket_ = INVALID_SOCKET;  // the one that was bound; owned by server_
    httplib::Server server_;
};

HttpServer::HttpServer(TextService& service, const infer::TextCodec& codec, ChatRenderer render,
                       ServerOptions options)
    : implementation_(std::make_unique<Implementation>(service, codec, std::move(render),
                                                       std::move(options))) {}
HttpServer::~HttpServer() = default;
int HttpServer::bind() {
    return implementation_->bind();
}
void HttpServer::run() {
    implementation_->run();
}
void HttpServer::stop() {
    implementation_->stop();
}

}  // namespace dslaunch::serve
