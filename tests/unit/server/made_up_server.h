// A server on loopback with a made-up decoder, and clients that send chosen bytes.
#pragma once

#include <fmt/core.h>
#include <httplib.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/fd.h"
#include "decoder/codec/text_codec.h"
#include "server/api_reply.h"
#include "server/http_server.h"
#include "support/catch.h"
#include "support/fake_runner.h"
#include "support/hang.h"
#include "support/listener.h"

namespace dslaunch::server {

inline constexpr int64_t kContext = 200;

// Returns the text that the server writes after PROMPT. Prompts are digits, each of which is a
// token of the made-up vocabulary.
inline std::string expected_text(const std::string& prompt, int64_t tokens) {
    std::string text;
    for (const int32_t token :
         test::continuation(std::vector<int32_t>(prompt.begin(), prompt.end()), tokens))
        text += decoder::byte_token_text(token);
    return text;
}

class Gate final : public test::FakeRunner {
  public:
    using FakeRunner::FakeRunner;
    std::span<float> run(const decoder::Batch& batch) override {
        while (is_closed) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        std::this_thread::sleep_for(std::chrono::microseconds(step_us));
        if (fails) fail(ExitCode::kPeerLost, "rank 1 was lost");
        const std::span<float> logits = FakeRunner::run(batch);
        if (is_broken && !logits.empty()) logits.back() = NAN;
        return logits;
    }
    std::atomic<bool> is_broken = false;
    std::atomic<bool> is_closed = false;
    std::atomic<bool> fails = false;
    std::atomic<int> step_us = 0;
};

struct MadeUpOptions {
    decoder::EngineOptions engine{8, 32};
    std::string key = "";
    int64_t context = kContext;
    int64_t requests_bytes_max = int64_t{256} << 20;
};

class Server {
  public:
    explicit Server(const MadeUpOptions& options = {})
        : runner(decoder::pages_for(options.context) + 64, 32, options.context),
          service_(runner, codec_, options.engine, {}, {[](bool) {}}),
          server_(
              service_, codec_,
              [](const ApiRequest& chat, int64_t) {
                  const JsonView messages = *chat.messages;
                  if (messages.elements() > 5) fail(ExitCode::kInput, "too many messages");
                  std::string text;
                  for (const JsonView message : messages.items())
                      text = message.find("content")->text();
                  return text;
              },
              options_of(options)) {
        port = server_.bind();
        thread_ = std::thread([this] { server_.run(); });
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
    nlohmann::json post(const std::string& path, const nlohmann::json& body,
                        int status = 200) const {
        const auto reply = client().Post(path, body.dump(), "application/json");
        REQUIRE(reply);
        INFO(reply->body);
        CHECK(reply->status == status);
        return nlohmann::json::parse(reply->body);
    }
    void stop() { server_.stop(); }
    ServiceCounts counts() const { return service_.counts(); }
    // Waits until no request is being computed and all pages are free.
    void await_idle() const {
        while (service_.counts().engine.pages_used > 0 || service_.counts().engine.running > 0)
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }

    Gate runner;
    int port = 0;

  private:
    static ServerOptions options_of(const MadeUpOptions& given) {
        ServerOptions options;
        options.port = 0;
        options.api_key = given.key;
        options.model = "made-up";
        options.sampling.temperature = 0;
        options.context = given.context;
        options.answers_max = 96;
        options.body_bytes_max = 100'000;
        options.requests_bytes_max = given.requests_bytes_max;
        return options;
    }

    decoder::ByteCodec codec_;
    TextService service_;
    HttpServer server_;
    std::thread thread_;
};

inline void send_all(const UniqueFd& socket, std::string_view bytes) {
    REQUIRE(::send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) == std::ssize(bytes));
}

// Returns all bytes that arrive until the server closes the connection.
inline std::string read_all(const UniqueFd& socket) {
    std::string text;
    char block[4096];
    for (ssize_t n = 0; (n = ::recv(socket.get(), block, sizeof block, 0)) > 0;)
        text.append(block, static_cast<size_t>(n));
    return text;
}

// Sends BYTES to the server at PORT. Returns its answer, up to the end of the connection.
inline std::string answers_to(int port, const std::string& bytes) {
    const UniqueFd socket = test::connected_to(port);
    std::thread writer(
        [&] { static_cast<void>(::send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL)); });
    std::string answers = read_all(socket);
    writer.join();
    return answers;
}

}  // namespace dslaunch::server
