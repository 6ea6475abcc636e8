// libFuzzer entry: a client sends any bytes to a server. Each answer is valid HTTP, and its body
// has the length that it gives. An error has its reason as JSON, and is the last answer. Only a
// client with the key gets a text. No request causes an internal fault of the server. Pieces of any
// size get the same answers.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "base/error.h"
#include "base/text.h"
#include "decoder/codec/text_codec.h"
#include "server/http/reply_writer.h"
#include "server/http/request_reader.h"
#include "server/http_routes.h"

using namespace dslaunch;
using namespace dslaunch::server;

namespace {

constexpr int64_t kContext = 24;
constexpr std::string_view kKey = "key";

// A decoder for which the likeliest token after a token is the next number.
class CountingRunner final : public decoder::BatchRunner {
  public:
    [[nodiscard]] int64_t vocabulary() const override { return 128; }
    [[nodiscard]] int64_t context() const override { return kContext; }
    [[nodiscard]] int64_t pages() const override { return 8; }
    [[nodiscard]] int64_t rows_max() const override { return 8; }
    [[nodiscard]] std::span<float> run(const decoder::Batch& batch) override {
        logits_.clear();
        for (const decoder::BatchRow& row : batch.rows) {
            if (!row.wants_logits) continue;
            logits_.resize(logits_.size() + 128, 0.0F);
            logits_[logits_.size() - 128 + static_cast<size_t>((row.token + 1) % 128)] = 1;
        }
        return logits_;
    }

  private:
    std::vector<float> logits_;
};

class WrittenClient final : public ReplySink {
  public:
    std::string answers;

    bool write(std::string_view bytes) override {
        answers += bytes;
        return true;
    }
    bool is_there() const override { return true; }
};

// A server, which is made only once.
class Served {
  public:
    explicit Served(const std::string& key)
        : service_(runner_, codec_, {4, 4}, {}, {[](bool) {}}),
          routes_(
              service_, codec_,
              [](const ApiRequest& chat, int64_t) {
                  if (chat.messages->elements() > 3 || chat.tools)
                      fail(ExitCode::kInput, "no such chat");
                  const auto content = (*chat.messages->items().begin()).find("content");
                  if (!content || !content->is(JsonKind::kText)) fail(ExitCode::kInput, "no text");
                  return std::string(content->text());
              },
              options(key)) {}

    // Returns the answers to BYTES, which arrive in pieces of STEP bytes, as from a connection.
    std::string answers_to(std::string_view bytes, size_t step) {
        using State = RequestReader::State;
        RequestBudget account(int64_t{1} << 20);
        RequestReader reader({2048, 4096}, account);
        WrittenClient client;
        while (!bytes.empty()) {
            std::string_view piece = bytes.substr(0, step);
            bytes.remove_prefix(piece.size());
            while (!piece.empty()) {
                piece.remove_prefix(reader.take(piece));
                std::optional<HttpReply> refusal;
                if (reader.state() == State::kHeadRead) {
                    refusal = routes_.refuse(reader.head());
                    if (!refusal) reader.read_body();
                } else if (reader.state() == State::kRefused) {
                    refusal = routes_.error(reader.refusal().status, reader.refusal().why);
                }
                if (refusal) {
                    const bool has_head = reader.state() != State::kRefused;
                    write(*refusal, has_head ? &reader.head() : nullptr, client);
                    return std::move(client.answers);
                }
                if (reader.state() == State::kWhole && !answer(reader, client))
                    return std::move(client.answers);
            }
        }
        return std::move(client.answers);
    }

  private:
    static bool write(const HttpReply& reply, const RequestHead* head, ReplySink& client) {
        const bool is_head = head != nullptr && head->method == "HEAD";
        const bool old = head != nullptr && head->old;
        const bool stays = head != nullptr && head->stays_open && reply.status == 200;
        DSL_CHECK(write_reply(reply, {stays, old, !is_head}, client), "an answer is not sent");
        return stays;
    }
    bool answer(RequestReader& reader, WrittenClient& client) {
        HttpRequest request{reader.head(), reader.body(), reader.lease()};
        const bool goes_on = write(routes_.answer(request, client), &reader.head(), client);
        reader.reset();
        return goes_on;
    }
    static ServerOptions options(const std::string& key) {
        ServerOptions options;
        options.api_key = key;
        options.model = "made-up";
        options.context = kContext;
        options.body_bytes_max = 4096;
        return options;
    }
    CountingRunner runner_;
    decoder::ByteCodec codec_;
    TextService service_;
    HttpRoutes routes_;
};

// Removes the text up to END, and END itself, from TEXT. Returns the text before END.
std::string_view take_until(std::string_view& text, std::string_view end) {
    const size_t at = text.find(end);
    DSL_CHECK(at != text.npos, "an answer ends early");
    const std::string_view taken = text.substr(0, at);
    text.remove_prefix(at + end.size());
    return taken;
}

std::string take_chunks(std::string_view& text) {
    std::string body;
    for (;;) {
        const std::string length_text(take_until(text, "\r\n"));
        const size_t length = std::stoul(length_text, nullptr, 16);
        DSL_CHECK(text.size() >= length + 2, "a chunk ends early");
        body += text.substr(0, length);
        DSL_CHECK(text.substr(length, 2) == "\r\n", "a chunk is longer than it says");
        text.remove_prefix(length + 2);
        if (length == 0) return body;
    }
}

void check_body(int status, const std::string& type, const std::string& body, bool has_key) {
    if (type == "text/event-stream") {
        DSL_CHECK(status == 200 && has_key && body.ends_with(kStreamEnd), "a stream without end");
        return;
    }
    if (type.starts_with("text/plain")) return;
    const nlohmann::json json = nlohmann::json::parse(body, nullptr, false);
    DSL_CHECK(json.is_object(), "an answer that is no JSON: {}", printable(body));
    DSL_CHECK((status != 200) == json.contains("error"), "an error without a reason");
    DSL_CHECK(has_key || !json.contains("choices"), "a text for someone without the key");
}

void check_answers(std::string_view answers, bool has_head_request, bool has_key) {
    while (!answers.empty()) {
        std::string_view head = take_until(answers, "\r\n\r\n");
        DSL_CHECK(head.starts_with("HTTP/1.1 "), "an answer without a status");
        const auto status = parse_int(head.substr(9, 3));
        DSL_CHECK(status && (*status == 200 || *status == 501 || *status == 503 || *status == 505 ||
                             (*status >= 400 && *status < 500)),
                  "the server is at fault: {}", printable(head));
        const bool is_last = head.find("\r\nConnection: close\r\n") != head.npos;
        DSL_CHECK(*status == 200 || is_last, "another request may follow an error");
        std::string type, length;
        bool chunked = false;
        head.remove_prefix(std::min(head.find("\r\n"), head.size()));
        for (std::string line; !head.empty();) {
            head.remove_prefix(2);
            line = head.substr(0, head.find("\r\n"));
            head.remove_prefix(line.size());
            if (line.starts_with("Content-Type: ")) type = line.substr(14);
            if (line.starts_with("Content-Length: ")) length = line.substr(16);
            chunked = chunked || line == "Transfer-Encoding: chunked";
        }
        if (has_head_request) return;                         // an answer to HEAD has no body
        if (type == "text/event-stream" && !chunked) return;  // an answer to HTTP/1.0
        std::string body;
        if (chunked) {
            body = take_chunks(answers);
        } else {
            const auto bytes = static_cast<size_t>(parse_int(length).value_or(0));
            DSL_CHECK(answers.size() >= bytes, "a body ends early");
            body = answers.substr(0, bytes);
            answers.remove_prefix(bytes);
        }
        DSL_CHECK(!is_last || answers.empty(), "an answer follows the last one");
        check_body(static_cast<int>(*status), type, body, has_key);
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    static Served open(""), locked{std::string(kKey)};
    if (size == 0) return 0;
    const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
    const bool wants_key = data[0] % 2 == 1;
    const size_t step = data[0] < 128 ? 1 + data[0] / 2 : SIZE_MAX;
    Served& server = wants_key ? locked : open;
    const std::string answers = server.answers_to(bytes, step);
    const bool has_key = !wants_key || bytes.find(kKey) != bytes.npos;
    check_answers(answers, bytes.find("HEAD") != bytes.npos, has_key);
    // Answers with texts contain ids and times, which differ each time.
    if (answers.find("\"created\"") == answers.npos && answers.find("dslaunch_") == answers.npos)
        DSL_CHECK(server.answers_to(bytes, 1 + step / 3) == answers,
                  "pieces of another size get other answers");
    return 0;
}
