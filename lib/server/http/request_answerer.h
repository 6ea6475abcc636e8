// Answers a request that was read: calls the handler and writes its reply. Data path: connection.h
// -> [here] -> HttpHandler -> reply_writer.h. Threads: any, each with its own connection.
#pragma once

#include <atomic>

#include "server/http/connection.h"
#include "server/http/http_message.h"

namespace dslaunch::server {

// The answerer of requests. It decides after each answer whether the connection may be used again.
class RequestAnswerer {
  public:
    // REQUESTS_MAX is the largest number of requests on one connection. Once IS_ENDING is true, no
    // connection is used for another request. HANDLER and IS_ENDING must outlive this object.
    RequestAnswerer(HttpHandler& handler, int requests_max, const std::atomic<bool>& is_ending)
        : handler_(handler), requests_max_(requests_max), is_ending_(is_ending) {}

    // Answers CONNECTION's request. Gives up if the client reads nothing for longer than PAUSE_MAX.
    // Sets is_usable to true if another request may follow, else to false. Does not throw.
    void answer(Connection& connection, Duration pause_max);

  private:
    [[nodiscard]] HttpReply reply_to(Connection& connection, const ConnectionClient& client);
    [[nodiscard]] bool write_answer(Connection& connection, ConnectionClient& client);

    HttpHandler& handler_;
    int requests_max_;
    const std::atomic<bool>& is_ending_;
};

}  // namespace dslaunch::server
