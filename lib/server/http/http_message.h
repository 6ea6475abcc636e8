// HTTP requests and answers in the form that the answering code uses. Data path:
// connection_server.h -> HttpHandler -> reply_writer.h.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "server/http/request_budget.h"
#include "server/http/request_head.h"

namespace dslaunch::server {

inline constexpr const char* kJsonType = "application/json";

// A whole request. Valid until it is answered.
struct HttpRequest {
    const RequestHead& head;
    std::string& body;   // may be moved from
    MemoryLease& lease;  // pays for the body; the answer's memory is charged to it
};

// An answer, whole or as a stream.
struct HttpReply {
    // A part of a stream.
    struct Piece {
        std::string text;  // may be empty
        bool last = false;
    };
    int status = 200;
    const char* type = kJsonType;  // a string literal
    std::string body;
    const char* fields = "";  // further lines of the head with their ends; a literal
    // If set, the body is sent in pieces, one for each call of this function. A call may block for
    // a moment. The function is not called again after it has returned the last piece, or once the
    // client has left.
    std::function<Piece()> stream;
};

// The client of a request that is being answered.
class ReplySink {
  public:
    virtual ~ReplySink() = default;
    // Sends all BYTES. Returns false if the client has left or has stopped reading.
    [[nodiscard]] virtual bool write(std::string_view bytes) = 0;
    // Returns false if the client has closed the connection, even if some of its bytes are still
    // unread. Does not block.
    [[nodiscard]] virtual bool is_there() const = 0;
};

// The code that answers requests. Threads: any, several at once.
class HttpHandler {
  public:
    virtual ~HttpHandler() = default;
    // Checks the head of a request before the body is read. Returns the answer if the request is
    // refused, otherwise nothing.
    [[nodiscard]] virtual std::optional<HttpReply> refuse(const RequestHead& head) = 0;
    // Returns true if answer() returns a short answer at once for a request with HEAD. The thread
    // that reads the connections then calls answer() itself, so that the request does not have to
    // wait for a free thread of the pool.
    [[nodiscard]] virtual bool is_quick(const RequestHead& head) = 0;
    // Returns the answer to REQUEST, which refuse() has accepted. The call may take any time. If it
    // throws, error() makes the answer.
    [[nodiscard]] virtual HttpReply answer(HttpRequest& request, const ReplySink& client) = 0;
    // Returns the answer with STATUS for bytes that are not a request, or for a request that cannot
    // be answered.
    [[nodiscard]] virtual HttpReply error(int status, std::string_view why) = 0;
};

}  // namespace dslaunch::server
