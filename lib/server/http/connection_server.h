// A port and its connections. One thread reads all of them, so that a client who sends slowly holds
// no thread; one of a bounded number of others answers each request that has come whole. Bodies on
// their way have half of the memory that requests may take; beyond it, the body that has held most
// for longest gives way. A client that breaks the rules gets one answer, and its connection ends.
// Data path: sockets -> request_reader.h -> [here] -> HttpHandler -> reply_writer.h -> sockets.
// Threads: run() reads.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/fd.h"
#include "base/small_thread.h"
#include "server/http/http_message.h"
#include "server/http/memory_account.h"
#include "server/http/request_reader.h"

namespace dslaunch::server {

struct ConnectionLimits {
    RequestLimits request;
    int answers_max = 512;       // requests that are answered at once; more wait
    int connections_max = 4096;  // open at once, or as many as the system has descriptors for
    int requests_max = 1000;     // of one connection
    Duration request_max = std::chrono::seconds{120};  // from a request's first byte to its last
    Duration pause_max = std::chrono::seconds{30};     // without a byte from, or to, the client
    Duration hold_max = std::chrono::seconds{5};       // in which a request that comes gives no way
    Duration idle_max = std::chrono::seconds{5};       // between two requests
    Duration drain_max = std::chrono::milliseconds{500};  // in which a refused client may read why
};

class ConnectionServer {
  public:
    // HANDLER and ACCOUNT must outlive this.
    ConnectionServer(const ConnectionLimits& limits, MemoryAccount& account, HttpHandler& handler);
    ConnectionServer(const ConnectionServer&) = delete;
    ConnectionServer& operator=(const ConnectionServer&) = delete;
    // REQUIRES: run() has returned, or was never called.
    ~ConnectionServer();

    // Takes PORT of HOST; PORT 0: a free one. Returns its number. Throws Error{kSetup}.
    int bind(const std::string& host, int port);
    // Serves until end(), and then until all begun requests are answered. Throws Error{kSetup} when
    // no thread can be started to answer, or the port fails. REQUIRES: bind().
    void run();
    // Takes no more requests. Any thread, also before run(); does not block.
    void end() noexcept;

  private:
    class Client;
    struct Connection;
    using Connections = std::list<Connection>;

    [[nodiscard]] bool goes_on();
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
    void answer_and_drain(Connection& connection, const HttpReply& reply);
    void drain(Connection& connection);
    void drop(Connection& connection);
    [[nodiscard]] bool watch(Connection& connection);
    void hand_over(Connection& connection);
    void take_back();
    void go_on_with(Connection& connection);
    void settle(Connection& connection);
    void sweep();
    void close_all();

    void work();
    void answer(Connection& connection, Duration pause_max);
    [[nodiscard]] HttpReply reply_to(Connection& connection, const Client& client);
    [[nodiscard]] bool write_answer(Connection& connection, Client& client);

    ConnectionLimits limits_;
    MemoryAccount& account_;
    HttpHandler& handler_;
    UniqueFd listener_, events_, wake_;
    std::atomic<bool> ending_ = false;
    // These are the reading thread's.
    std::vector<char> buffer_;
    Connections reading_;
    size_t open_ = 0;       // connections, also those that are answered
    size_t answering_ = 0;  // that were handed over and have not come back
    bool listening_ = false;
    bool short_of_threads_ = false;
    TimePoint next_sweep_;

    std::mutex mutex_;  // guards the members below
    std::condition_variable changed_;
    Connections ready_;     // to be answered
    Connections returned_;  // for the reading thread
    size_t waiting_ = 0;    // threads without work
    bool over_ = false;
    std::vector<SmallThread> threads_;  // the reading thread's
};

}  // namespace dslaunch::server
