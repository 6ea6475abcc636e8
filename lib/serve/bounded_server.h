// cpp-httplib's server with bounds that it lacks: how long a request's head is, how long a client
// may take to send it, how many clients are answered at once. A connection whose request was not
// read to its end is closed, so that what is left of it never passes for the next one. Data path:
// sockets -> [here] -> http_routes.h. Threads: one for each connection, up to a bound.
#pragma once

#include <httplib.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>

#include "base/clock.h"

namespace dslaunch::serve {

struct ConnectionLimits {
    int64_t head_bytes_max = int64_t{64} << 10;        // of a request's first line and headers
    Duration request_max = std::chrono::seconds{120};  // from a request's first byte to its last
    Duration pause_max = std::chrono::seconds{30};     // without a byte from, or to, the client
    Duration idle_max = std::chrono::seconds{5};       // between two requests
};

// The bytes of one client, one request after the other. One thread.
class RequestStream : public httplib::Stream {
  public:
    explicit RequestStream(int64_t head_bytes_max) : head_bytes_max_(head_bytes_max) {}

    // Waits until another request begins. False: none does, or OPEN says that none may.
    [[nodiscard]] virtual bool await_request(const std::function<bool()>& open) = 0;
    // False: the client is gone.
    [[nodiscard]] virtual bool is_there() const = 0;

    // A request begins: its head is counted.
    void begin_request();
    enum class BodyKind {
        kOfLength,
        kInChunks,  // its chunks say where it ends, and take LENGTH bytes at most
        kRefused,   // is not read
    };
    // Its head was read, and a body of LENGTH bytes follows.
    void begin_body(BodyKind kind, uint64_t length);
    // All of the request was taken, and nothing else can follow than another one.
    [[nodiscard]] bool at_boundary() const;

    ssize_t read(char* into, size_t bytes_max) final;

  protected:
    // As read(), from the client. At most 0: nothing comes any more.
    [[nodiscard]] virtual ssize_t receive(char* into, size_t bytes_max) = 0;

  private:
    int64_t head_bytes_max_;
    int64_t head_bytes_ = 0;
    bool in_head_ = true;
    BodyKind body_ = BodyKind::kOfLength;
    uint64_t body_left_ = 0;
};

class BoundedServer final : public httplib::Server {
  public:
    BoundedServer(int connections_max, ConnectionLimits limits);

    // Answers the requests of STREAM until there are no more, in the calling thread.
    void answer(RequestStream& stream);
    // False: the client whose request this thread answers is gone. REQUIRES: within a handler.
    [[nodiscard]] static bool client_is_there();

    // Serves until end(). REQUIRES: bound to a port.
    void run();
    // Takes no more requests: run() returns once those under way are answered. Any thread, also
    // before run().
    void end();

  private:
    void begin_body(const httplib::Request& request, RequestStream& stream) const;
    bool process_and_close_socket(socket_t socket) override;

    ConnectionLimits limits_;
    std::atomic<bool> is_ending_ = false;
    std::atomic<bool> has_run_ = false;
};

}  // namespace dslaunch::serve
