// A server whose n-th allocation fails while it answers. The client gets an error, and the server
// goes on as if nothing had happened.
#include <malloc.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <memory>
#include <new>
#include <string>

#include "decoder/ranks/patient_thread.h"
#include "support/listener.h"
#include "unit/server/heap_watch.h"
#include "unit/server/made_up_server.h"

namespace {

std::atomic<int64_t> until_failure = 0;  // 0: none
std::atomic<int64_t> alive_bytes = 0;
std::atomic<int64_t> most_bytes = 0;
std::atomic<bool> has_failed = false;
thread_local bool is_spared = false;

bool fails_now() {
    if (is_spared || until_failure <= 0) return false;
    if (until_failure.fetch_sub(1) != 1) return false;
    has_failed = true;
    return true;
}

void* allocate(size_t bytes) noexcept {
    if (fails_now()) return nullptr;
    void* const made = std::malloc(bytes == 0 ? 1 : bytes);
    if (made == nullptr) return nullptr;
    const auto usable = static_cast<int64_t>(::malloc_usable_size(made));
    const int64_t alive = alive_bytes += usable;
    int64_t most = most_bytes;
    while (alive > most && !most_bytes.compare_exchange_weak(most, alive)) {
    }
    return made;
}

void release(void* made) noexcept {
    if (made != nullptr) alive_bytes -= static_cast<int64_t>(::malloc_usable_size(made));
    std::free(made);
}

void* allocate_or_throw(size_t bytes) {
    void* made = allocate(bytes);
    while (made == nullptr) {
        const std::new_handler handler = std::get_new_handler();
        if (handler == nullptr) throw std::bad_alloc();
        handler();
        made = allocate(bytes);
    }
    return made;
}

}  // namespace

void* operator new(size_t bytes) {
    return allocate_or_throw(bytes);
}
void* operator new[](size_t bytes) {
    return allocate_or_throw(bytes);
}
void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
    return allocate(bytes);
}
void* operator new[](size_t bytes, const std::nothrow_t&) noexcept {
    return allocate(bytes);
}
void operator delete(void* made) noexcept {
    release(made);
}
void operator delete[](void* made) noexcept {
    release(made);
}
void operator delete(void* made, size_t) noexcept {
    release(made);
}
void operator delete[](void* made, size_t) noexcept {
    release(made);
}

namespace dslaunch::test {

SpareThread::SpareThread() : was_spared_(std::exchange(is_spared, true)) {}
SpareThread::~SpareThread() {
    is_spared = was_spared_;
}

void fail_allocation(int64_t n) {
    has_failed = false;
    until_failure = n;
}

bool allocation_has_failed() {
    return has_failed;
}

namespace {
int64_t watched_from = 0;
}

void watch_peak() {
    watched_from = alive_bytes;
    most_bytes = watched_from;
}

int64_t peak_bytes() {
    return most_bytes - watched_from;
}

}  // namespace dslaunch::test

namespace dslaunch::server {
namespace {

// Returns the answer to REQUEST; empty if the connection ended without one.
std::string answer_to(int port, const std::string& request) {
    const UniqueFd socket = test::connected_to(port);
    static_cast<void>(::send(socket.get(), request.data(), request.size(), MSG_NOSIGNAL));
    return read_all(socket);
}

bool is_whole(const std::string& answer) {
    if (!answer.starts_with("HTTP/1.1 200")) return false;
    return answer.find("event-stream") == std::string::npos || answer.ends_with("0\r\n\r\n");
}

std::string post_of(const std::string& path, const std::string& body) {
    return fmt::format(
        "POST {} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: "
        "application/json\r\nContent-Length: {}\r\n\r\n{}",
        path, body.size(), body);
}

// Returns the first text of a whole reply.
std::string text_of(const std::string& answer) {
    const auto json = nlohmann::json::parse(answer.substr(answer.find("\r\n\r\n") + 4));
    return json["choices"][0]["text"];
}

struct Asked {
    const char* what;
    std::string request;
    bool is_stream = false;
};

std::vector<Asked> all_asked() {
    const std::string padding(3000, ' ');
    return {
        {"health", "GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"},
        {"metrics", "GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"},
        {"models", "GET /v1/models HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"},
        {"a completion", post_of("/v1/completions",
                                 R"({"prompt": ["12", "3"], "n": 2, "max_tokens": 6, "stop": ["~"],
                                  "echo": true, "temperature": 0.5, "seed": 1})" +
                                     padding)},
        {"a chat",
         post_of("/v1/chat/completions",
                 R"({"messages": [{"role": "user", "content": "45"}], "max_tokens": 4})")},
        {"a stream",
         post_of("/v1/completions", R"({"prompt": "12", "max_tokens": 6, "stream": true, "n": 2})"),
         true},
        {"no such place", "GET /nothing HTTP/1.1\r\nHost: localhost\r\n\r\n"},
        {"no HTTP", "GET /\n\n"},
        {"no JSON", post_of("/v1/completions", "[1, 2, {\"a\": x}]")},
        {"a wrong field", post_of("/v1/completions", R"({"prompt": "1", "max_tokens": -1})")},
    };
}

TEST_CASE("whichever allocation fails while a request is answered, the server goes on") {
    const test::SpareThread spared;
    Server server;
    const std::string check = post_of("/v1/completions", R"({"prompt": "12", "max_tokens": 6})");
    const std::string text = expected_text("12", 6);
    for (const Asked& asked : all_asked()) {
        const std::string whole = answer_to(server.port, asked.request);
        const std::string status = whole.substr(0, 12);
        int64_t n = 1, refused = 0;
        for (;; ++n) {
            test::fail_allocation(n);
            const std::string answer = answer_to(server.port, asked.request);
            const bool failed = test::allocation_has_failed();
            test::fail_allocation(0);
            INFO(asked.what << ", allocation " << n << " fails\n" << answer);
            const bool is_refused =
                answer.starts_with("HTTP/1.1 503") || answer.starts_with("HTTP/1.1 500");
            refused += is_refused ? 1 : 0;
            // A stream that has begun is cut off, or ends with an error.
            const bool is_cut = asked.is_stream && answer.starts_with("HTTP/1.1 200");
            // Without memory for its connection, a client has no connection.
            CHECK((answer.starts_with(status) || is_refused || is_cut || answer.empty()));
            server.await_idle();
            const std::string after = answer_to(server.port, check);
            INFO(after);
            REQUIRE(is_whole(after));
            REQUIRE(text_of(after) == text);
            if (!failed) {
                CHECK((asked.is_stream ? is_whole(answer) : answer.starts_with(status)));
                break;
            }
        }
        INFO(asked.what);
        CHECK(n > 1);
        CHECK((refused > 0 || status != "HTTP/1.1 200"));
    }
    CHECK(server.counts().engine.pages_used == 0);
}

TEST_CASE("an allocation of a thread that others wait for is tried again, for a while") {
    std::unique_ptr<std::array<int, 100>> made;
    const auto finds_memory = [&made] {
        made.reset();
        test::fail_allocation(1);
        try {
            made = std::make_unique<std::array<int, 100>>();
        } catch (const std::bad_alloc&) {
        }
        test::fail_allocation(0);
        return made != nullptr;
    };
    for (const Duration limit : {Duration(test::kHangTime), Duration{0}}) {
        bool found = false;
        {
            const decoder::PatientThread patient(limit);
            found = finds_memory();
        }
        CHECK(found == (limit > Duration{0}));
        found = finds_memory();
        CHECK_FALSE(found);
    }
}

// A runner that has no memory for a batch, before or after it has told other ranks about the batch.
class ShortOfMemory final : public test::FakeRunner {
  public:
    using FakeRunner::FakeRunner;
    std::span<float> run(const decoder::Batch& batch) override {
        if (is_short) throw std::bad_alloc();
        return FakeRunner::run(batch);
    }
    [[nodiscard]] bool is_stuck() const override { return is_short && others_wait; }
    std::atomic<bool> is_short = true;
    bool others_wait = false;
};

TEST_CASE(
    "a batch that finds no memory ends its texts, and the job only if other ranks wait for it") {
    for (const bool others_wait : {false, true}) {
        ShortOfMemory runner(decoder::pages_for(kContext) + 64, 32, kContext);
        runner.others_wait = others_wait;
        const decoder::ByteCodec codec;
        TextService service(runner, codec, {8, 32}, {}, {[](bool) {}});
        const auto end_of = [&](std::string& text) {
            TextRequest request;
            request.prompt = {'1', '2'};
            request.tokens_max = 6;
            request.sampling.temperature = 0;
            auto submitted = service.submit(std::move(request));
            REQUIRE(std::holds_alternative<TextService::Ticket>(submitted));
            const auto ticket = std::get<TextService::Ticket>(submitted);
            for (;;) {
                const auto piece = ticket->next(std::chrono::seconds(1));
                if (!piece) continue;
                text += piece->text;
                if (piece->end != TextEnd::kNone) return piece->end;
            }
        };
        std::string text;
        CHECK(end_of(text) == (others_wait ? TextEnd::kFailed : TextEnd::kNoMemory));
        CHECK(service.failure().empty() == !others_wait);
        if (others_wait) continue;
        runner.is_short = false;
        CHECK(end_of(text) == TextEnd::kLength);
        CHECK(text == expected_text("12", 6));
    }
}

}  // namespace
}  // namespace dslaunch::server
