// The server on loopback with a decoder that is made up: a client of the protocol gets the text
// that the engine makes, and whoever is wrong, late or gone takes nothing from the others.
#include "serve/http_server.h"

#include <arpa/inet.h>
#include <httplib.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <thread>

#include "base/error.h"
#include "base/fd.h"
#include "infer/text/byte_codec.h"
#include "serve/api_reply.h"
#include "serve/bounded_server.h"
#include "support/catch.h"
#include "support/fake_runner.h"
#include "support/hang.h"

namespace dslaunch::serve {
namespace {

using nlohmann::json;

constexpr int64_t kPages = 64;
constexpr int64_t kContext = 200;

std::vector<int32_t> as_tokens(const std::string& text) {
    return {text.begin(), text.end()};
}

std::string as_text(const std::vector<int32_t>& tokens) {
    std::string text;
    for (const int32_t token : tokens) text += infer::byte_token_text(token);
    return text;
}

// Prompts of digits: each is a token of the made-up vocabulary.
std::string expected_text(const std::string& prompt, int64_t tokens) {
    return as_text(test::continuation(as_tokens(prompt), tokens));
}

class Gate final : public test::FakeRunner {
  public:
    using FakeRunner::FakeRunner;
    std::span<float> run(const infer::Batch& batch) override {
        while (is_closed) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        if (fails) fail(ExitCode::kPeerLost, "rank 1 was lost");
        const std::span<float> logits = FakeRunner::run(batch);
        if (is_broken && !logits.empty()) logits.back() = NAN;
        return logits;
    }
    std::atomic<bool> is_broken = false;
    std::atomic<bool> is_closed = false;
    std::atomic<bool> fails = false;
};

class Server {
  public:
    explicit Server(infer::EngineOptions options = {8, 32}, const std::string& key = "")
        : service_(runner, codec_, options, {}, [](bool) {}),
          server_(
              service_, codec_,
              [](const nlohmann::ordered_json& messages, const nlohmann::ordered_json&) {
                  if (messages.size() > 5) fail(ExitCode::kInput, "too many messages");
                  return messages.back()["content"].get<std::string>();
              },
              options_of(key)) {
        port = server_.bind();
        thread_ = std::thread([this] { server_.run(); });
        while (!client().Get("/health")) std::this_thread::yield();
    }
    ~Server() {
        runner.is_closed = false;
        server_.stop();
        thread_.join();
    }

    httplib::Client client() const {
        httplib::Client client("127.0.0.1", port);
        client.set_read_timeout(test::kHangMs / 1000);
        return client;
    }
    json post(const std::string& path, const json& body, int status = 200) const {
        const auto reply = client().Post(path, body.dump(), "application/json");
        REQUIRE(reply);
        INFO(reply->body);
        CHECK(reply->status == status);
        return json::parse(reply->body);
    }
    void stop() { server_.stop(); }
    ServiceCounts counts() const { return service_.counts(); }
    // Waits until nothing is computed and all pages are free.
    void await_idle() const {
        while (service_.counts().engine.pages_used > 0 || service_.counts().engine.running > 0)
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }

    Gate runner{kPages, 32, kContext};
    int port = 0;

  private:
    static ServerOptions options_of(const std::string& key) {
        ServerOptions options;
        options.port = 0;
        options.api_key = key;
        options.model = "made-up";
        options.sampling.temperature = 0;
        options.context = kContext;
        options.connections_max = 96;
        options.body_bytes_max = 100'000;
        return options;
    }

    infer::ByteCodec codec_;
    TextService service_;
    HttpServer server_;
    std::thread thread_;
};

TEST_CASE("a completion and a chat get the text that the engine makes") {
    const Server server;
    const json completion =
        server.post("/v1/completions", {{"prompt", "123"}, {"max_tokens", 9}, {"echo", true}});
    CHECK(completion["choices"][0]["text"] == "123" + expected_text("123", 9));
    CHECK(completion["choices"][0]["finish_reason"] == "length");
    CHECK(completion["usage"]["prompt_tokens"] == 3);
    CHECK(completion["usage"]["completion_tokens"] == 9);
    CHECK(completion["model"] == "made-up");
    const json chat =
        server.post("/v1/chat/completions",
                    {{"messages", {{{"role", "user"}, {"content", "45"}}}}, {"max_tokens", 5}});
    CHECK(chat["choices"][0]["message"]["content"] == expected_text("45", 5));
    const json several =
        server.post("/v1/completions", {{"prompt", {"1", "22"}}, {"max_tokens", 3}, {"n", 2}});
    REQUIRE(several["choices"].size() == 4);
    CHECK(several["choices"][1]["text"] == expected_text("1", 3));
    CHECK(several["choices"][2]["text"] == expected_text("22", 3));
}

TEST_CASE("a stop text ends a reply, streamed or whole") {
    const Server server;
    const std::string all = expected_text("7", 60);
    const std::string stop = all.substr(20, 3);
    const std::string expected = all.substr(0, all.find(stop));
    const json body = {{"prompt", "7"}, {"max_tokens", 60}, {"stop", stop}};
    const json whole = server.post("/v1/completions", body);
    CHECK(whole["choices"][0]["text"] == expected);
    CHECK(whole["choices"][0]["finish_reason"] == "stop");
    json streamed = body;
    streamed["stream"] = true;
    streamed["stream_options"] = {{"include_usage", true}};
    const auto reply = server.client().Post("/v1/completions", streamed.dump(), "application/json");
    REQUIRE(reply);
    CHECK(reply->get_header_value("Content-Type") == "text/event-stream");
    std::string text, last;
    int64_t made = 0;
    std::istringstream lines(reply->body);
    for (std::string line; std::getline(lines, line);) {
        if (line.empty()) continue;
        REQUIRE(line.starts_with("data: "));
        last = line.substr(6);
        if (last == "[DONE]") break;
        const json event = json::parse(last);
        if (event.contains("usage")) made = event["usage"]["completion_tokens"];
        for (const json& choice : event["choices"]) text += choice["text"].get<std::string>();
    }
    CHECK(last == "[DONE]");
    CHECK(text == expected);
    CHECK(made > 0);
    server.await_idle();
}

TEST_CASE("many clients at once get what each gets alone") {
    const Server server({8, 200});
    constexpr int kClients = 48;
    std::vector<std::string> texts(kClients);
    std::vector<std::thread> threads;
    for (int i = 0; i < kClients; ++i)
        threads.emplace_back([&, i] {
            const json body = {{"prompt", std::to_string(i)}, {"max_tokens", 40 + i}};
            const auto reply =
                server.client().Post("/v1/completions", body.dump(), "application/json");
            texts[static_cast<size_t>(i)] =
                !reply ? httplib::to_string(reply.error())
                : reply->status == 200
                    ? json::parse(reply->body)["choices"][0]["text"].get<std::string>()
                    : reply->body;
        });
    for (std::thread& thread : threads) thread.join();
    for (int i = 0; i < kClients; ++i)
        CHECK(texts[static_cast<size_t>(i)] == expected_text(std::to_string(i), 40 + i));
    server.await_idle();
    CHECK(server.counts().finished == kClients);
}

TEST_CASE("a full queue answers 429, and is open again when there is room") {
    Server server({1, 1});
    server.runner.is_closed = true;
    std::vector<std::thread> waiting;
    std::atomic<int> answered = 0;
    for (int i = 0; i < 2; ++i)
        waiting.emplace_back([&] {  // Catch is for one thread
            const json body = {{"prompt", "1"}, {"max_tokens", 2}};
            const auto reply =
                server.client().Post("/v1/completions", body.dump(), "application/json");
            if (reply && reply->status == 200) ++answered;
        });
    while (server.counts().requests < 2) std::this_thread::yield();
    const json error = server.post("/v1/completions", {{"prompt", "1"}}, 429);
    CHECK(error["error"]["type"] == "rate_limit_error");
    server.runner.is_closed = false;
    for (std::thread& thread : waiting) thread.join();
    CHECK(answered == 2);
    static_cast<void>(server.post("/v1/completions", {{"prompt", "1"}, {"max_tokens", 1}}));
}

// A client that sends BODY and goes away without reading.
void leave_early(int port, const std::string& body) {
    const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    REQUIRE(::connect(socket, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
    const std::string request =
        fmt::format("POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n{}",
                    body.size(), body);
    REQUIRE(::send(socket, request.data(), request.size(), 0) == std::ssize(request));
    ::close(socket);
}

TEST_CASE("a client that leaves frees its place and its cache") {
    for (const bool stream : {false, true}) {
        Server server({1, 8});
        server.runner.is_closed = true;
        const json body = {{"prompt", "5"}, {"max_tokens", 190}, {"stream", stream}};
        leave_early(server.port, body.dump());
        while (server.counts().requests < 1) std::this_thread::yield();
        std::this_thread::sleep_for(std::chrono::milliseconds(600));  // it is noticed meanwhile
        server.runner.is_closed = false;
        server.await_idle();
        while (server.counts().cancelled + server.counts().finished == 0) std::this_thread::yield();
        CHECK(server.counts().engine.pages_used == 0);
        CHECK(server.counts().cancelled == 1);
    }
}

TEST_CASE("wrong requests get their reason, and the server goes on") {
    const Server server;
    CHECK(server.post("/v1/completions", {{"prompt", 5}}, 400)["error"]["param"] == "prompt");
    const std::string long_prompt(kContext + 1, '1');
    const json too_long = server.post("/v1/completions", {{"prompt", long_prompt}}, 400);
    CHECK(too_long["error"]["message"].get<std::string>().find("context") != std::string::npos);
    json messages = json::array();
    for (int i = 0; i < 6; ++i) messages.push_back({{"role", "user"}, {"content", "1"}});
    CHECK(server.post("/v1/chat/completions", {{"messages", messages}}, 400)["error"]["message"] ==
          "too many messages");
    // A byte that is no token of the made-up vocabulary.
    server.post("/v1/completions", {{"prompt", "~"}}, 400);
    const auto large =
        server.client().Post("/v1/completions", std::string(200'000, ' '), "application/json");
    if (large) CHECK(large->status == 413);
    // More than ever fits is no matter of waiting.
    const json prompts(30, "1");
    CHECK(server.post("/v1/completions", {{"prompt", prompts}, {"n", 2}}, 400)["error"]["param"] ==
          "n");
    const auto missing = server.client().Get("/v1/nothing");
    REQUIRE(missing);
    CHECK(missing->status == 404);
    CHECK(json::parse(missing->body).contains("error"));
    server.post("/v1/completions", {{"prompt", "1"}, {"max_tokens", 1}});
}

TEST_CASE("a body is taken whatever type a client says it has") {
    const Server server;
    const std::string body = R"({"prompt": "1", "max_tokens": 1)" + std::string(10'000, ' ') + "}";
    const auto reply =
        server.client().Post("/v1/completions", body, "application/x-www-form-urlencoded");
    REQUIRE(reply);
    CHECK(reply->status == 200);
}

TEST_CASE("logits that are no numbers end their text with the reason, and the server goes on") {
    Server server;
    server.runner.is_broken = true;
    const json reply = server.post("/v1/completions", {{"prompt", "12"}}, 500);
    CHECK(reply["error"]["message"].get<std::string>().find("not finite") != std::string::npos);
    server.await_idle();
    server.runner.is_broken = false;
    const json text = server.post("/v1/completions", {{"prompt", "12"}, {"max_tokens", 3}});
    CHECK(text["choices"][0]["text"] == expected_text("12", 3));
}

TEST_CASE("a server with a key wants it, but for its health") {
    const Server server({8, 32}, "secret");
    server.post("/v1/completions", {{"prompt", "1"}}, 401);
    httplib::Client client = server.client();
    client.set_bearer_token_auth("secret");
    const auto reply = client.Post("/v1/completions", R"({"prompt": "1"})", "application/json");
    REQUIRE(reply);
    CHECK(reply->status == 200);
    client.set_bearer_token_auth("secres");
    CHECK(client.Get("/v1/models")->status == 401);
    CHECK(server.client().Get("/health")->status == 200);
}

TEST_CASE("models, metrics and health are told") {
    const Server server;
    server.post("/v1/completions", {{"prompt", "12"}, {"max_tokens", 4}});
    const json models = json::parse(server.client().Get("/v1/models")->body);
    CHECK(models["data"][0]["id"] == "made-up");
    server.await_idle();
    const std::string metrics = server.client().Get("/metrics")->body;
    CHECK(metrics.find("\ndslaunch_generated_tokens_total 4\n") != std::string::npos);
    CHECK(metrics.find("\ndslaunch_prompt_tokens_total 2\n") != std::string::npos);
    CHECK(metrics.find("\ndslaunch_cache_pages_used 0\n") != std::string::npos);
}

TEST_CASE("a decoder that fails ends all texts with an error and is told by health") {
    Server server;
    server.runner.fails = true;
    const json reply = server.post("/v1/completions", {{"prompt", "12"}}, 503);
    CHECK(reply["error"]["message"].get<std::string>().find("rank 1 was lost") !=
          std::string::npos);
    CHECK(server.client().Get("/health")->status == 503);
    server.post("/v1/completions", {{"prompt", "12"}}, 503);
}

// What the server answers to BYTES, until it closes the connection.
std::string answers_to(const Server& server, const std::string& bytes) {
    const UniqueFd socket(::socket(AF_INET, SOCK_STREAM, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(server.port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    REQUIRE(::connect(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
    std::thread writer(
        [&] { static_cast<void>(::send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL)); });
    std::string answers;
    char block[4096];
    for (ssize_t n = 0; (n = ::recv(socket.get(), block, sizeof block, 0)) > 0;)
        answers.append(block, static_cast<size_t>(n));
    writer.join();
    return answers;
}

size_t count_of(const std::string& text, const std::string& word) {
    size_t count = 0;
    for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1))
        ++count;
    return count;
}

TEST_CASE("a client that breaks the rules of HTTP gets one answer, and its connection ends") {
    const Server server({8, 32}, "secret");
    const std::string completion = R"({"prompt": "1", "max_tokens": 1})";
    const auto post = [&](const std::string& headers, const std::string& body) {
        return fmt::format("POST /v1/completions HTTP/1.1\r\n{}\r\n{}", headers, body);
    };
    const auto length_of = [](const std::string& body) {
        return fmt::format("Content-Length: {}\r\n", body.size());
    };
    const std::string key = "Authorization: Bearer secret\r\n";
    // Of a body that is refused nothing passes for a request.
    const std::string hidden = "GET /health HTTP/1.1\r\n\r\n";
    const std::string padded = std::string(8000, ' ') + hidden;
    const struct {
        const char* what;
        std::string bytes;
        const char* status;
    } rows[] = {
        {"no key", post(length_of(padded), padded), "401"},
        {"a body that is too large", post(key + "Content-Length: 100001\r\n", padded), "413"},
        {"less than nothing", post(key + "Content-Length: -1\r\n", padded), "413"},
        {"a length that is none", post(key + "Content-Length: x\r\n", padded), "400"},
        {"files in a form",
         post(key + "Content-Type: multipart/form-data; boundary=x\r\n" + length_of(padded),
              padded),
         "415"},
        {"a body that grows", post(key + "Content-Encoding: gzip\r\n" + length_of(padded), padded),
         "415"},
        {"a body behind a GET", "GET /health HTTP/1.1\r\n" + length_of(padded) + "\r\n" + padded,
         "200"},
        {"chunks without end",
         post(key + "Transfer-Encoding: chunked\r\n",
              "1ffff\r\n" + std::string(0x1ffff, ' ') + "\r\n"),
         "400"},
        {"headers without end", "GET /health HTTP/1.1\r\n" + std::string(100'000, 'a'), "400"},
        {"no HTTP", "\r\n\r\n" + hidden, "400"},
    };
    for (const auto& row : rows) {
        const std::string answers = answers_to(server, row.bytes);
        INFO(row.what << "\n" << answers);
        CHECK(answers.starts_with(std::string("HTTP/1.1 ") + row.status));
        CHECK(count_of(answers, "HTTP/1.1 ") == 1);
    }
    std::string many = "GET /health HTTP/1.1\r\n";
    for (int i = 0; i < 20'000; ++i) many += "A: b\r\n";
    CHECK(answers_to(server, many + "\r\n").starts_with("HTTP/1.1 400"));
    // Requests that follow each other at once are answered one by one.
    const std::string two = post(key + length_of(completion), completion) +
                            post(key + "Connection: close\r\n" + length_of(completion), completion);
    CHECK(count_of(answers_to(server, two), "\"finish_reason\": \"length\"") == 2);
    const std::string ranges =
        "GET /health HTTP/1.1\r\nConnection: close\r\nRange: bytes=0-0,1-1\r\n\r\n";
    CHECK(answers_to(server, ranges).find("{\"status\": \"ok\"}") != std::string::npos);
    const std::string bad = "GET /health HTTP/1.1\r\nRange: bytes=0-0,0-0,2-0,0-5\r\n\r\n";
    CHECK(answers_to(server, bad).find("{\"error\": {\"message\": \"HTTP 416\"") !=
          std::string::npos);
}

TEST_CASE("a server that ends answers what was begun, then nobody") {
    Server server({1, 8});
    server.runner.is_closed = true;
    std::string whole;  // Catch is for one thread
    std::thread client([&] {
        const json body = {{"prompt", "12"}, {"max_tokens", 4}};
        const auto reply = server.client().Post("/v1/completions", body.dump(), "application/json");
        if (reply && reply->status == 200) whole = reply->body;
    });
    std::string events;
    std::thread streamed([&] {
        const json body = {{"prompt", "12"}, {"max_tokens", 4}, {"stream", true}};
        const auto reply = server.client().Post("/v1/completions", body.dump(), "application/json");
        if (reply) events = reply->body;
    });
    while (server.counts().requests < 2) std::this_thread::yield();
    server.stop();
    CHECK_FALSE(server.client().Get("/health"));
    server.runner.is_closed = false;
    client.join();
    streamed.join();
    REQUIRE_FALSE(whole.empty());
    CHECK(json::parse(whole)["choices"][0]["text"] == expected_text("12", 4));
    CHECK(events.ends_with(kStreamEnd));
}

// A client that has sent a part of its request would be waited for as long as a pause may take.
TEST_CASE("a server that ends waits for no request that is still coming") {
    Server server;
    const std::string part =
        "POST /v1/completions HTTP/1.1\r\nContent-Length: 100\r\n\r\n{\"prompt\"";
    std::thread client([&] { static_cast<void>(answers_to(server, part)); });
    std::this_thread::sleep_for(std::chrono::milliseconds(200));  // it is read meanwhile
    const auto begin = std::chrono::steady_clock::now();
    server.stop();
    client.join();
    CHECK(std::chrono::steady_clock::now() - begin < ConnectionLimits{}.pause_max / 2);
}

}  // namespace
}  // namespace dslaunch::serve
