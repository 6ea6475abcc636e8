// Connections beside other connections that send slowly, send nothing or do not read.
#include "server/http/connection_server.h"

#include <poll.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "support/listener.h"
#include "support/text_tools.h"
#include "unit/server/made_up_server.h"

namespace dslaunch::server {
namespace {

// Answers with the request's body, once the test allows it.
class Echo final : public HttpHandler {
  public:
    std::optional<HttpReply> refuse(const RequestHead& head) override {
        if (head.path != "/no") return std::nullopt;
        return error(403, "no");
    }
    bool is_quick(const RequestHead& head) override { return head.path == "/quick"; }
    HttpReply answer(HttpRequest& request, const ReplySink& client) override {
        if (request.head.path == "/wait") {
            ++waiting;
            while (!may_go && client.is_there())
                std::this_thread::sleep_for(std::chrono::milliseconds(1));
            left += may_go ? 0 : 1;
        }
        if (request.head.path == "/throw") throw std::runtime_error("thrown");
        HttpReply reply;
        reply.body = std::move(request.body);
        if (request.head.path == "/large") reply.body.assign(size_t{64} << 20, 'a');
        return reply;
    }
    HttpReply error(int status, std::string_view why) override {
        HttpReply reply;
        reply.status = status;
        reply.body = why;
        return reply;
    }
    std::atomic<int> waiting = 0, left = 0;
    std::atomic<bool> may_go = false;
};

class Running {
  public:
    explicit Running(const ConnectionLimits& limits, int64_t budget_bytes = 1 << 20)
        : budget(budget_bytes), server_(limits, budget, handler) {
        port = server_.bind("127.0.0.1", 0);
        thread_ = std::thread([this] { server_.run(); });
    }
    ~Running() {
        handler.may_go = true;
        server_.end();
        thread_.join();
    }
    RequestBudget budget;
    Echo handler;
    int port = 0;

  private:
    ConnectionServer server_;
    std::thread thread_;
};

std::string get(const std::string& path) {
    return fmt::format("GET {} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", path);
}

TEST_CASE("a client is answered beside more idle heads and bodies than threads or connections") {
    ConnectionLimits limits;
    limits.answers_max = 2;
    limits.connections_max = 16;
    Running running(limits);
    std::vector<UniqueFd> slow;
    for (int i = 0; i < 60; ++i) {
        slow.push_back(test::connected_to(running.port));
        const std::string part =
            i % 3 == 0   ? "GET / HTTP/1.1\r\nX: "
            : i % 3 == 1 ? "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\na"
                         : "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5";
        send_all(slow.back(), part);
        CHECK(answers_to(running.port, get("/")).starts_with("HTTP/1.1 200"));
    }
    // The first connections gave way, and not the last ones.
    send_all(slow[59], "\r\nabcde\r\n0\r\n\r\n");
    char first[12];
    REQUIRE(::recv(slow[59].get(), first, sizeof first, MSG_WAITALL) == sizeof first);
    CHECK(std::string(first, sizeof first) == "HTTP/1.1 200");
    CHECK(read_all(slow[0]).empty());
}

TEST_CASE("a client that comes too slowly is told so") {
    ConnectionLimits limits;
    limits.pause_max = std::chrono::milliseconds(200);
    Running running(limits);
    const UniqueFd half = test::connected_to(running.port);
    send_all(half, "GET / HTTP/1.1\r\nHo");
    CHECK(read_all(half).starts_with("HTTP/1.1 408"));
}

TEST_CASE("a client that does not read holds nobody up, and its connection ends") {
    ConnectionLimits limits;
    limits.pause_max = std::chrono::milliseconds(200);
    limits.answers_max = 1;
    Running running(limits);
    const UniqueFd deaf = test::connected_to(running.port);
    send_all(deaf, get("/large"));
    CHECK(answers_to(running.port, get("/")).starts_with("HTTP/1.1 200"));
    CHECK(read_all(deaf).size() < size_t{64} << 20);
}

TEST_CASE("requests wait where as many are answered as may be, and are answered in their turn") {
    ConnectionLimits limits;
    limits.answers_max = 3;
    Running running(limits);
    std::vector<UniqueFd> clients;
    for (int i = 0; i < 10; ++i) {
        clients.push_back(test::connected_to(running.port));
        send_all(clients.back(), get("/wait"));
    }
    while (running.handler.waiting < 3) std::this_thread::yield();
    CHECK(running.handler.waiting == 3);
    running.handler.may_go = true;
    for (const UniqueFd& client : clients) CHECK(read_all(client).starts_with("HTTP/1.1 200"));
}

TEST_CASE("what takes no time is answered though every thread is taken, also many at once") {
    ConnectionLimits limits;
    limits.answers_max = 1;
    limits.requests_max = 700;
    Running running(limits);
    const UniqueFd waiting = test::connected_to(running.port);
    send_all(waiting, get("/wait"));
    while (running.handler.waiting < 1) std::this_thread::yield();
    std::string many;
    for (int i = 0; i < 1000; ++i) many += "GET /quick HTTP/1.1\r\nHost: a\r\n\r\n";
    CHECK(test::count_of(answers_to(running.port, many), "HTTP/1.1 200") == 700);
    const std::string mixed = "GET /quick HTTP/1.1\r\nHost: a\r\n\r\n" + get("/");
    const UniqueFd both = test::connected_to(running.port);
    send_all(both, mixed);
    running.handler.may_go = true;
    CHECK(test::count_of(read_all(both), "HTTP/1.1 200") == 2);
    CHECK(read_all(waiting).starts_with("HTTP/1.1 200"));
}

TEST_CASE("an answer learns that its client has left, also behind bytes that it sent") {
    Running running({});
    for (const std::string after : {"", "\r\n", "GET / HTTP/1.1\r\nHost: a\r\n\r\n"}) {
        const int before = running.handler.left;
        const int waiting = running.handler.waiting;
        {
            const UniqueFd client = test::connected_to(running.port);
            send_all(client, get("/wait") + after);
            while (running.handler.waiting == waiting) std::this_thread::yield();
        }
        while (running.handler.left == before) std::this_thread::yield();
        CHECK(running.handler.left == before + 1);
    }
}

TEST_CASE("bodies have memory together, and whoever finds none left is told to come again") {
    Running running({}, 4500);
    const std::string post = "POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: ";
    std::string first = post + "2000\r\n\r\n" + std::string(1999, 'a');
    const UniqueFd holder = test::connected_to(running.port);
    send_all(holder, first);
    while (running.budget.bytes_taken() < 1999) std::this_thread::yield();
    const std::string refused =
        answers_to(running.port, post + "3000\r\n\r\n" + std::string(3000, 'b'));
    CHECK(refused.starts_with("HTTP/1.1 503"));
    CHECK(refused.find("Retry-After: 1\r\n") != std::string::npos);
    CHECK(answers_to(running.port, get("/")).starts_with("HTTP/1.1 200"));
    send_all(holder, "a");
    CHECK(read_all(holder).ends_with(std::string(2000, 'a')));
    while (running.budget.bytes_taken() > 0) std::this_thread::yield();
    CHECK(answers_to(running.port, post + "3000\r\n\r\n" + std::string(3000, 'b'))
              .starts_with("HTTP/1.1 200"));
}

TEST_CASE("bodies that come slowly give way where others need their memory, but not at once") {
    const std::string post = "POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: ";
    const std::string whole = post + "30000\r\n\r\n" + std::string(30000, 'b');
    for (const bool at_once : {true, false}) {
        ConnectionLimits limits;
        limits.hold_max = at_once ? Duration{0} : Duration(std::chrono::hours(1));
        Running running(limits, 100'000);
        std::vector<UniqueFd> slow;
        const auto begun = std::chrono::steady_clock::now();
        // Waits until the youngest request is at least half as old as the oldest: a request's cost
        // is its bytes times its age, and the bytes alone shall decide here.
        const auto even_out = [&] {
            std::this_thread::sleep_for(std::chrono::steady_clock::now() - begun);
        };
        // Their requests never end. They hold 1,000 to 39,000 bytes each, 80,000 in all.
        for (const int bytes : {1000, 39'000, 2000, 38'000}) {
            even_out();
            slow.push_back(test::connected_to(running.port));
            const int64_t before = running.budget.bytes_taken();
            send_all(slow.back(), post + "40000\r\n\r\n" + std::string(bytes, 'a'));
            while (running.budget.bytes_taken() < before + bytes) {
                // The third and the fourth take the place of the second.
                if (at_once && running.budget.bytes_taken() < before) break;
                std::this_thread::yield();
            }
        }
        even_out();
        const std::string answer = answers_to(running.port, whole);
        if (!at_once) {
            CHECK(answer.starts_with("HTTP/1.1 503"));
            continue;
        }
        CHECK(answer.starts_with("HTTP/1.1 200"));
        for (const size_t large : {1, 3}) {
            const std::string told = read_all(slow[large]);
            CHECK(told.starts_with("HTTP/1.1 503"));
            CHECK_THAT(told, Catch::Contains("arrived slowly"));
        }
        for (const size_t small : {0, 2}) {
            pollfd entry{slow[small].get(), POLLIN, 0};
            CHECK(::poll(&entry, 1, 0) == 0);
        }
    }
}

TEST_CASE("an answer that throws is an error of the server, and a refusal ends the connection") {
    Running running({});
    CHECK(answers_to(running.port, "GET /throw HTTP/1.1\r\nHost: a\r\n\r\n" + get("/"))
              .starts_with("HTTP/1.1 500"));
    const std::string refused =
        answers_to(running.port, "GET /no HTTP/1.1\r\nHost: a\r\n\r\n" + get("/"));
    CHECK(refused.starts_with("HTTP/1.1 403"));
    CHECK(test::count_of(refused, "HTTP/1.1 ") == 1);
}

TEST_CASE("a server that was asked to end before it ran takes nobody") {
    Echo handler;
    RequestBudget budget(1000);
    ConnectionServer server({}, budget, handler);
    const int port = server.bind("127.0.0.1", 0);
    const UniqueFd client = test::connected_to(port);
    send_all(client, get("/"));
    server.end();
    server.run();
    CHECK(read_all(client).empty());
}

TEST_CASE("a port that is taken is told of") {
    Running running({});
    Echo handler;
    RequestBudget budget(1000);
    ConnectionServer server({}, budget, handler);
    CHECK_THROWS_WITH(server.bind("127.0.0.1", running.port),
                      Catch::Contains("the port is in use"));
    CHECK_THROWS_WITH(server.bind("203.0.113.1", 0), Catch::Contains("cannot listen"));
    CHECK_THROWS_WITH(server.bind("no such name", 0), Catch::Contains("cannot listen"));
}

}  // namespace
}  // namespace dslaunch::server
