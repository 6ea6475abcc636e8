// Requests and answers of HTTP, as the code that answers sees them. Data path: connection_server.h
// -> HttpHandler -> reply_writer.h.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "server/http/memory_account.h"
#include "server/http/request_head.h"

namespace dslaunch::server {

inline constexpr const char* kJsonType = "application/json";

struct HttpRequest {
    const RequestHead& head;
    std::string& body;   // may be taken
    MemoryLease& lease;  // of its bytes; the answer's memory is charged to it
};

struct HttpReply {
    struct Piece {
        std::string text;  // may be empty
        bool last = false;
    };
    int status = 200;
    const char* type = kJsonType;  // for ever
    std::string body;
    const char* fields = "";  // further lines of the head, each with its end; for ever
    // Set: the body comes in its pieces. It may wait a moment, and is not called again after the
    // last piece or once the client has left.
    std::function<Piece()> stream;
};

// The client of a request that is answered.
class ReplySink {
  public:
    virtual ~ReplySink() = default;
    // Sends all BYTES. Returns false if the client has left, or reads nothing any more.
    [[nodiscard]] virtual bool write(std::string_view bytes) = 0;
    // Returns false if the client has closed the connection, whatever it sent. Does not block.
    [[nodiscard]] virtual bool is_there() const = 0;
};

// Whoever answers requests. Threads: any, several at once.
class HttpHandler {
  public:
    virtual ~HttpHandler() = default;
    // Returns the answer to a request that is refused by its head, before its body is read.
    [[nodiscard]] virtual std::optional<HttpReply> refuse(const RequestHead& head) = 0;
    // Returns true if answer() takes no time for such a request and makes a short answer: it is
    // then called where connections are read, however many others are answered.
    [[nodiscard]] virtual bool is_quick(const RequestHead& head) = 0;
    // Returns the answer to REQUEST, which refuse() let through; may take as long as it wants.
    // error() answers what it throws.
    [[nodiscard]] virtual HttpReply answer(HttpRequest& request, const ReplySink& client) = 0;
    // Returns the answer of STATUS to bytes that are not a request, or cannot be answered.
    [[nodiscard]] virtual HttpReply error(int status, std::string_view why) = 0;
};

}  // namespace dslaunch::server
