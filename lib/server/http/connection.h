// One connection of a client: its socket, the request that is being read, and its last answer. Data
// path: socket -> [here] -> request_reader.h; reply_writer.h -> [here] -> socket. One thread at a
// time.
#pragma once

#include <list>
#include <string>
#include <string_view>
#include <utility>

#include "base/clock.h"
#include "base/fd.h"
#include "server/http/http_message.h"
#include "server/http/request_budget.h"
#include "server/http/request_reader.h"

namespace dslaunch::server {

struct Connection;
using Connections = std::list<Connection>;

// The state of a connection. It moves between lists, but its address stays the same.
struct Connection {
    Connection(UniqueFd socket_, const RequestLimits& limits, RequestBudget& budget)
        : socket(std::move(socket_)), reader(limits, budget) {}

    // The event for which the connection waits.
    enum class Phase {
        kIdle,      // no byte of a request has come
        kReading,   // a part of a request has come
        kDraining,  // the last answer was sent; later bytes are not read as a request
    };
    UniqueFd socket;
    RequestReader reader;
    std::string following;  // bytes after the request that is being answered
    Phase phase = Phase::kIdle;
    TimePoint since;      // when the phase began
    TimePoint last_byte;  // when bytes last came from the client
    int requests = 0;
    bool is_usable = true;       // another request may follow
    Connections::iterator self;  // the place of the connection in its list
};

// The client of a connection whose request is being answered.
class ConnectionClient final : public ReplySink {
  public:
    // Writes to SOCKET; waits at most PAUSE_MAX for the client to read.
    ConnectionClient(int socket, Duration pause_max) : socket_(socket), pause_max_(pause_max) {}

    [[nodiscard]] bool write(std::string_view bytes) override;
    [[nodiscard]] bool is_there() const override;

  private:
    int socket_;
    Duration pause_max_;
};

// Sends the reply `100 Continue`, for which a client waits before it sends the body of its request.
void send_continue(const Connection& connection);

// Prepares CONNECTION after an answer: either for the next request, or for its end.
void settle(Connection& connection);

// Closes only the sending side of CONNECTION, so that a client that is still sending can read its
// answer. If the connection were closed at once, unread bytes would make the system reset the
// connection, and the answer would be lost.
void drain(Connection& connection);

// Writes a short answer, which fits in the socket's buffer, and drains the connection. Never waits
// for a client that does not read. Returns false if the connection must be closed now.
[[nodiscard]] bool answer_and_drain(Connection& connection, const HttpReply& reply);

// Sends kNoMemoryReply; allocates nothing. The connection must be closed now.
void answer_no_memory(const Connection& connection) noexcept;

}  // namespace dslaunch::server
