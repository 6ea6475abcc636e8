// A port and its connections. One thread reads all connections, so that a client that sends slowly
// occupies no thread; when a request is complete, one of a limited number of other threads answers
// it. Bodies that are still arriving may use half of the memory for requests. If they need more,
// the request with the largest product of memory and duration is refused. A client that breaks the
// protocol gets one answer, and its connection is closed. Data path: sockets -> request_reader.h ->
// [here] -> HttpHandler -> reply_writer.h -> sockets. Threads: run() reads.
#pragma once

#include <atomic>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/fd.h"
#include "server/http/answer_threads.h"
#include "server/http/connection.h"
#include "server/http/http_message.h"
#include "server/http/request_answerer.h"
#include "server/http/request_budget.h"
#include "server/http/request_reader.h"

namespace dslaunch::server {

// The limits of a server. A connection that exceeds a limit is refused or closed.
struct ConnectionLimits {
    RequestLimits request;
    int answers_max = 512;       // requests that are answered at once; others wait
    int connections_max = 4096;  // open at once, or fewer if the descriptor limit is lower
    int requests_max = 1000;     // on one connection
    Duration request_max = std::chrono::seconds{120};     // from a request's first byte to its last
    Duration pause_max = std::chrono::seconds{30};        // without a byte from the client or to it
    Duration hold_max = std::chrono::seconds{5};          // a younger request keeps its memory
    Duration idle_max = std::chrono::seconds{5};          // longest time between two requests
    Duration drain_max = std::chrono::milliseconds{500};  // for a refused client to read why
};

// Reads the requests of all connections and has them answered.
class ConnectionServer {
  public:
    // HANDLER and BUDGET must outlive this object.
    ConnectionServer(const ConnectionLimits& limits, RequestBudget& budget, HttpHandler& handler);
    ConnectionServer(const ConnectionServer&) = delete;
    ConnectionServer& operator=(const ConnectionServer&) = delete;
    // REQUIRES: run() has returned, or was never called.
    ~ConnectionServer();

    // Opens PORT at HOST, or any free port if PORT is 0. Returns its number. Throws Error{kSetup}.
    int bind(const std::string& host, int port);
    // Serves until end() is called and all requests that were begun are answered. Throws
    // Error{kSetup} if no thread can be started to answer, or if the port fails. REQUIRES: bind().
    void run();
    // Stops accepting requests. Any thread, also before run(); does not block.
    void end() noexcept;

  private:
    [[nodiscard]] bool goes_on();
    void wake() noexcept;
    void look();
    void accept_all();
    [[nodiscard]] bool make_room();
    void admit(UniqueFd socket);
    void receive(Connection& connection);
    void read_on(Connection& connection, std::string_view bytes);
    [[nodiscard]] bool read_request(Connection& connection, std::string_view& bytes);
    [[nodiscard]] bool read_head(Connection& connection, std::string_view& bytes);
    void make_memory(const Connection& connection, size_t bytes);
    void send_away(Connection& connection) noexcept;
    void refuse(Connection& connection, int status, std::string_view why);
    void drop(Connection& connection);
    [[nodiscard]] bool watch(Connection& connection);
    void take_back();
    void go_on_with(Connection& connection);
    void sweep();

    ConnectionLimits limits_;
    RequestBudget& budget_;
    HttpHandler& handler_;
    std::atomic<bool> is_ending_ = false;
    RequestAnswerer answerer_;
    UniqueFd listener_, events_, wake_;
    // Only the reading thread uses these.
    std::vector<char> buffer_;
    Connections reading_;
    size_t open_ = 0;  // connections, also while they are being answered
    bool is_listening_ = false;
    TimePoint next_sweep_;
    AnswerThreads threads_;  // destroyed first, since they use the other members
};

}  // namespace dslaunch::server
