// Writes an answer as HTTP/1. Data path: HttpHandler -> [here] -> ReplySink. One thread.
#pragma once

#include <string_view>

#include "server/http/http_message.h"

namespace dslaunch::server {

// The properties of an answer that depend on its request.
struct ReplyMode {
    bool stays_open = true;  // another request may follow
    bool old = false;        // for HTTP/1.0: the end of the connection ends a stream
    bool sends_body = true;  // false for HEAD
};

// Writes REPLY to CLIENT. Returns false if the connection cannot be used any more. Passes on every
// exception of the reply's stream; the answer is then incomplete, and the connection must be
// closed.
[[nodiscard]] bool write_reply(const HttpReply& reply, const ReplyMode& mode, ReplySink& client);

// A complete answer in static memory, for requests that cannot be answered for lack of memory. The
// connection must be closed after it.
inline constexpr std::string_view kNoMemoryReply =
    "HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nRetry-After: 1\r\n"
    "Content-Type: application/json\r\nContent-Length: 111\r\n\r\n"
    "{\"error\": {\"message\": \"no memory is left to answer this\", \"type\": \"server_error\", "
    "\"param\": null, \"code\": null}}";

}  // namespace dslaunch::server
