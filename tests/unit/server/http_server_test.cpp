// The server on loopback with a made-up decoder. A client of the protocol gets the text that the
// engine makes. Clients that are wrong, late or gone take nothing from the others.
#include "server/http_server.h"

#include <sstream>

#include "support/listener.h"
#include "support/text_tools.h"
#include "unit/server/made_up_server.h"

namespace dslaunch::server {
namespace {

using nlohmann::json;

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
        // Null in all events but the last one, as in OpenAI's protocol.
        REQUIRE(event.contains("usage"));
        CHECK(event["usage"].is_null() != event["choices"].empty());
        if (!event["usage"].is_null()) made = event["usage"]["completion_tokens"];
        for (const json& choice : event["choices"]) text += choice["text"].get<std::string>();
    }
    CHECK(last == "[DONE]");
    CHECK(text == expected);
    CHECK(made > 0);
    server.await_idle();
}

TEST_CASE("many clients at once get what each gets alone") {
    const Server server({.engine = {8, 200}});
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
    Server server({.engine = {1, 1}});
    server.runner.is_closed = true;
    std::vector<std::thread> waiting;
    std::atomic<int> answered = 0;
    for (int i = 0; i < 2; ++i)
        waiting.emplace_back([&] {  // only one thread may use Catch
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

std::string http_server_post_of(const std::string& body, const std::string& headers = "") {
    return fmt::format(
        "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n{}Content-Length: {}\r\n\r\n{}",
        headers, body.size(), body);
}

TEST_CASE("a client that leaves frees its places and its cache, whatever it sent besides") {
    for (const bool stream : {false, true})
        for (const std::string after : {"", "\r\n", "GET /health HTTP/1.1\r\nHost: a\r\n\r\n"}) {
            INFO("stream " << stream << ", after it " << after);
            // One text runs and others wait; each would take half a minute.
            Server server({.engine = {1, 8}, .context = 30'000});
            server.runner.step_us = 1000;
            const json body = {
                {"prompt", "5"}, {"max_tokens", 29'000}, {"stream", stream}, {"n", 3}};
            {
                const UniqueFd socket = test::connected_to(server.port);
                send_all(socket, http_server_post_of(body.dump()) + after);
                while (server.counts().engine.waiting < 2) std::this_thread::yield();
            }
            server.await_idle();
            CHECK(server.counts().cancelled == 3);
            CHECK(server.counts().finished == 0);
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
    // A byte that is not a token of the made-up vocabulary.
    server.post("/v1/completions", {{"prompt", "~"}}, 400);
    const auto large =
        server.client().Post("/v1/completions", std::string(200'000, ' '), "application/json");
    if (large) CHECK(large->status == 413);
    // A request that can never fit does not wait.
    const json prompts(30, "1");
    CHECK(server.post("/v1/completions", {{"prompt", prompts}, {"n", 2}}, 400)["error"]["param"] ==
          "n");
    const auto missing = server.client().Get("/v1/nothing");
    REQUIRE(missing);
    CHECK(missing->status == 404);
    CHECK(json::parse(missing->body).contains("error"));
    server.post("/v1/completions", {{"prompt", "1"}, {"max_tokens", 1}});
}

TEST_CASE("a body is taken whatever type a client with the key says it has") {
    const Server server({.key = "a%20b"});
    const std::string body = R"({"prompt": "1", "max_tokens": 1)" + std::string(10'000, ' ') + "}";
    httplib::Client client = server.client();
    client.set_default_headers({{"Authorization", "Bearer a%20b"}, {"Host", "elsewhere.org"}});
    const auto reply = client.Post("/v1/completions", body, "application/x-www-form-urlencoded");
    REQUIRE(reply);
    CHECK(reply->status == 200);
}

TEST_CASE("without a key no page from elsewhere is served, by whatever name it calls the server") {
    const Server server;
    const std::string body = R"({"prompt": "1", "max_tokens": 1})";
    const struct {
        const char *host, *origin, *type;
        int status;
    } rows[] = {
        {"localhost", "", "application/json", 200},
        {"127.0.0.1:8000", "http://localhost:3000", "application/json; charset=utf-8", 200},
        {"[::1]:80", "https://127.0.0.1", "Application/JSON", 200},
        {"LocalHost:1", "", "", 200},
        {"evil.org", "", "application/json", 403},
        {"127.0.0.1.evil.org", "", "application/json", 403},
        {"localhost.evil.org", "", "application/json", 403},
        {"10.0.0.1", "", "application/json", 403},
        {"0x7f.1", "", "application/json", 403},
        {"127.1", "", "application/json", 403},
        {"localhost", "http://evil.org", "application/json", 403},
        {"localhost", "null", "application/json", 403},
        {"localhost", "http://localhost.evil.org", "application/json", 403},
        {"localhost", "http://localhost@evil.org", "application/json", 403},
        {"localhost", "http://localhost:80:80", "application/json", 403},
        {"localhost", "file://localhost", "application/json", 403},
        {"localhost", "", "text/plain", 415},
        {"localhost", "", "application/x-www-form-urlencoded", 415},
        {"localhost", "", "multipart/form-data; boundary=application/json", 415},
        {"localhost", "", "text/plain; application/json", 415},
    };
    for (const auto& row : rows) {
        std::string request = "POST /v1/completions HTTP/1.1\r\nConnection: close\r\n";
        request += fmt::format("Host: {}\r\nContent-Length: {}\r\n", row.host, body.size());
        if (*row.origin != '\0') request += fmt::format("Origin: {}\r\n", row.origin);
        if (*row.type != '\0') request += fmt::format("Content-Type: {}\r\n", row.type);
        const std::string answer = answers_to(server.port, request + "\r\n" + body);
        INFO(request << answer);
        CHECK(answer.starts_with(fmt::format("HTTP/1.1 {}", row.status)));
        CHECK(test::count_of(answer, "HTTP/1.1 ") == 1);
    }
    CHECK(server.counts().requests == 4);
}

TEST_CASE("an address that others reach wants a key") {
    for (const char* host : {"0.0.0.0", "::", "", "10.1.2.3", "192.168.0.1"}) {
        ServerOptions options;
        options.host = host;
        INFO(host);
        CHECK_THROWS_WITH(HttpServer::require_key(options), Catch::Contains("add --api-key-file"));
        options.api_key = "key";
        CHECK_NOTHROW(HttpServer::require_key(options));
    }
    for (const char* host : {"127.0.0.1", "localhost", "127.9.9.9", "::1"}) {
        ServerOptions options;
        options.host = host;
        CHECK_NOTHROW(HttpServer::require_key(options));
    }
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
    const Server server({.key = "secret"});
    server.post("/v1/completions", {{"prompt", "1"}}, 401);
    httplib::Client client = server.client();
    client.set_bearer_token_auth("secret");
    const auto reply = client.Post("/v1/completions", R"({"prompt": "1"})", "application/json");
    REQUIRE(reply);
    CHECK(reply->status == 200);
    client.set_bearer_token_auth("secres");
    CHECK(client.Get("/v1/models")->status == 401);
    CHECK_THAT(client.Get("/v1/models")->body, Catch::Contains("`Authorization: Bearer KEY`"));
    for (const char* word : {"bearer", "BEARER", "bEaReR"}) {
        httplib::Client other = server.client();
        other.set_default_headers({{"Authorization", std::string(word) + " secret"}});
        CHECK(other.Get("/v1/models")->status == 200);
    }
    for (const char* word :
         {"Basic secret", "secret", "Bearer", "Bearer s%65cret", "Bearer: secret"}) {
        httplib::Client other = server.client();
        other.set_default_headers({{"Authorization", word}});
        CHECK(other.Get("/v1/models")->status == 401);
    }
    CHECK(server.client().Get("/health")->status == 200);
}

TEST_CASE("the places of other servers are told the one here") {
    const Server server;
    const auto reply = server.client().Post("/api/chat", "{}", "application/json");
    CHECK(reply->status == 404);
    CHECK_THAT(reply->body, Catch::Contains("POST /api/chat; use POST /v1/chat/completions"));
    const auto of_curl = server.client().Post("/api/chat", "{}", "text/plain");
    REQUIRE(of_curl);
    CHECK(of_curl->status == 404);
}

TEST_CASE("a page of this machine may ask and read, with a key a page of any") {
    const auto asked = [](const Server& server, const char* origin, const char* method) {
        return answers_to(server.port,
                          fmt::format("{} /v1/chat/completions HTTP/1.1\r\nConnection: close\r\n"
                                      "Host: localhost\r\nOrigin: {}\r\n"
                                      "Access-Control-Request-Method: POST\r\n"
                                      "Access-Control-Request-Headers: authorization\r\n"
                                      "Content-Length: 0\r\n\r\n",
                                      method, origin));
    };
    const auto has = [](const std::string& answer, const char* line) {
        return answer.find(line) != std::string::npos;
    };
    const Server open;
    const Server keyed({.key = "secret"});
    for (const auto& [server, origin] : {std::pair{&open, "http://localhost:3000"},
                                         std::pair{&keyed, "https://chat.example.org"}}) {
        const std::string answer = asked(*server, origin, "OPTIONS");
        INFO(answer);
        CHECK(answer.starts_with("HTTP/1.1 200"));
        CHECK(has(answer, "\r\nAccess-Control-Allow-Origin: *\r\n"));
        CHECK(has(answer, "\r\nAccess-Control-Allow-Headers: Authorization, *\r\n"));
        CHECK(has(answer, "\r\nAccess-Control-Allow-Methods: GET, POST, OPTIONS\r\n"));
        CHECK(has(answer, "\r\nContent-Length: 0\r\n"));
        // Answers are readable for that origin too, and so are refusals.
        CHECK(has(asked(*server, origin, "POST"), "\r\nAccess-Control-Allow-Origin: *\r\n"));
    }
    CHECK(asked(keyed, "https://chat.example.org", "POST").starts_with("HTTP/1.1 401"));
    const std::string foreign = asked(open, "https://chat.example.org", "OPTIONS");
    CHECK(foreign.starts_with("HTTP/1.1 403"));
    CHECK_FALSE(has(foreign, "Access-Control-Allow"));
}

TEST_CASE("a request for another model is refused with the name of this one") {
    const Server server;
    for (const char* own : {"made-up", "", "some/Made-Up", "/models/made-up/"})
        server.post("/v1/completions", {{"model", own}, {"prompt", "12"}, {"max_tokens", 1}});
    const json other = server.post("/v1/completions", {{"model", "gpt-4o"}, {"prompt", "12"}}, 404);
    CHECK(other["error"]["message"] ==
          "this server has no model `gpt-4o`, only `made-up`: send "
          "this name, or leave `model` out");
    CHECK(other["error"]["param"] == "model");
}

TEST_CASE("models, metrics and health are told") {
    const Server server;
    server.post("/v1/completions", {{"prompt", "12"}, {"max_tokens", 4}});
    const json models = json::parse(server.client().Get("/v1/models")->body);
    CHECK(models["data"][0]["id"] == "made-up");
    CHECK(json::parse(server.client().Get("/v1/models/made-up")->body) == models["data"][0]);
    CHECK(json::parse(server.client().Get("/v1/models/m%61de%2Dup")->body) == models["data"][0]);
    const auto other = server.client().Get("/v1/models/gpt-4o");
    CHECK(other->status == 404);
    CHECK(json::parse(other->body)["error"]["param"] == "model");
    CHECK(server.client().Get("/models")->body.find("add /v1 to the address") != std::string::npos);
    server.post("/v1/models/made-up", {}, 405);
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

TEST_CASE("a client that breaks the rules of HTTP gets one answer, and its connection ends") {
    const Server server({.key = "secret"});
    const std::string completion = R"({"prompt": "1", "max_tokens": 1})";
    const auto post = [&](const std::string& headers, const std::string& body) {
        return fmt::format("POST /v1/completions HTTP/1.1\r\nHost: a\r\n{}\r\n{}", headers, body);
    };
    const auto length_of = [](const std::string& body) {
        return fmt::format("Content-Length: {}\r\n", body.size());
    };
    const std::string key = "Authorization: Bearer secret\r\n";
    // No part of a refused body counts as a request.
    const std::string hidden = "GET /health HTTP/1.1\r\nHost: a\r\n\r\n";
    const std::string padded = std::string(8000, ' ') + hidden;
    const struct {
        const char* what;
        std::string bytes;
        const char* status;
    } rows[] = {
        {"no key", post(length_of(padded), padded), "401"},
        {"a body that is too large", post(key + "Content-Length: 100001\r\n", padded), "413"},
        {"less than nothing", post(key + "Content-Length: -1\r\n", padded), "400"},
        {"a length that is none", post(key + "Content-Length: x\r\n", padded), "400"},
        {"files in a form",
         post(key + "Content-Type: multipart/form-data; boundary=x\r\n" + length_of(padded),
              padded),
         "415"},
        {"a body that grows", post(key + "Content-Encoding: gzip\r\n" + length_of(padded), padded),
         "415"},
        {"a body behind a GET",
         "GET /health HTTP/1.1\r\nHost: a\r\n" + length_of(padded) + "\r\n" + padded, "200"},
        {"chunks without end",
         post(key + "Transfer-Encoding: chunked\r\n",
              "1ffff\r\n" + std::string(0x1ffff, ' ') + "\r\n"),
         "413"},
        {"a head without end", "GET /health HTTP/1.1\r\nHost: a\r\nB: " + std::string(100'000, 'a'),
         "431"},
        {"no HTTP", "\r\n\r\n" + hidden, "400"},
        {"another place", "GET /v1/nothing HTTP/1.1\r\nHost: a\r\n" + key + "\r\n" + hidden, "404"},
        {"another method", "DELETE /v1/models HTTP/1.1\r\nHost: a\r\n" + key + "\r\n" + hidden,
         "405"},
        {"no JSON", post(key + length_of(hidden), hidden) + hidden, "400"},
    };
    for (const auto& row : rows) {
        const std::string answers = answers_to(server.port, row.bytes);
        INFO(row.what << "\n" << answers);
        CHECK(answers.starts_with(std::string("HTTP/1.1 ") + row.status));
        CHECK(test::count_of(answers, "HTTP/1.1 ") == 1);
    }
    std::string many = "GET /health HTTP/1.1\r\n";
    for (int i = 0; i < 20'000; ++i) many += "A: b\r\n";
    CHECK(answers_to(server.port, many + "\r\n").starts_with("HTTP/1.1 431"));
    // Requests that follow each other at once are answered one by one.
    const std::string two = post(key + length_of(completion), completion) +
                            post(key + "Connection: close\r\n" + length_of(completion), completion);
    CHECK(test::count_of(answers_to(server.port, two), "\"finish_reason\": \"length\"") == 2);
    // Requests for parts of an answer have no effect, however many they are.
    std::string ranges = "GET /health HTTP/1.1\r\nHost: a\r\nConnection: close\r\nRange: bytes=0-0";
    for (int i = 0; i < 15'000; ++i) ranges += ",0-0";
    CHECK(answers_to(server.port, ranges + "\r\n\r\n").find("{\"status\": \"ok\"}") !=
          std::string::npos);
}

TEST_CASE("requests that come in chunks, in pieces, by HTTP/1.0 or as HEAD are answered") {
    const Server server;
    const std::string host = "Host: localhost\r\nConnection: close\r\n";
    const std::string chunks = "POST /v1/completions HTTP/1.1\r\n" + host +
                               "Transfer-Encoding: Chunked\r\n\r\n1\r\n{\r\n0012\r\n"
                               "\"prompt\":\"1\",\"n\":1\r\n1\r\n}\r\n0\r\n\r\n";
    CHECK(answers_to(server.port, chunks).starts_with("HTTP/1.1 200"));
    const UniqueFd slow = test::connected_to(server.port);
    for (const char c : chunks) {
        send_all(slow, {&c, 1});
        if (c == '\n') std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    CHECK(read_all(slow).starts_with("HTTP/1.1 200"));
    const std::string body = R"({"prompt": "1", "max_tokens": 3, "stream": true})";
    const std::string old = answers_to(
        server.port, fmt::format("POST /v1/completions HTTP/1.0\r\nContent-Length: {}\r\n\r\n{}",
                                 body.size(), body));
    CHECK(old.find("Transfer-Encoding") == std::string::npos);
    CHECK(old.ends_with(kStreamEnd));
    const std::string head = answers_to(server.port, "HEAD /health HTTP/1.1\r\n" + host + "\r\n");
    CHECK(head.starts_with("HTTP/1.1 200"));
    CHECK(head.ends_with("\r\n\r\n"));
    const UniqueFd polite = test::connected_to(server.port);
    send_all(polite, "POST /v1/completions HTTP/1.1\r\n" + host +
                         "Expect: 100-continue\r\nContent-Length: 15\r\n\r\n");
    char first[25];
    REQUIRE(::recv(polite.get(), first, sizeof first, MSG_WAITALL) == sizeof first);
    CHECK(std::string(first, sizeof first) == "HTTP/1.1 100 Continue\r\n\r\n");
    send_all(polite, R"({"prompt": "1"})");
    CHECK(read_all(polite).starts_with("HTTP/1.1 200"));
}

TEST_CASE("a server that ends answers what was begun, then nobody") {
    Server server({.engine = {1, 8}});
    server.runner.is_closed = true;
    std::string whole;  // only one thread may use Catch
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

// The server would wait for a client that has sent a part of its request, until the longest pause
// is over.
TEST_CASE("a server that ends waits for no request that is still coming") {
    Server server;
    const std::string part =
        "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{";
    const UniqueFd client = test::connected_to(server.port);
    send_all(client, part);
    std::this_thread::sleep_for(std::chrono::milliseconds(200));  // it is read meanwhile
    server.stop();
    // After a pause it would have been answered.
    CHECK(read_all(client).empty());
}

}  // namespace
}  // namespace dslaunch::server
