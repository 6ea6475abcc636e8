// An answer as bytes of HTTP/1. Data path: HttpHandler -> [here] -> ReplySink. One thread.
#pragma once

#include <string_view>

#include "server/http/http_message.h"

namespace dslaunch::server {

struct ReplyMode {
    bool stays_open = true;  // another request may follow
    bool old = false;        // to HTTP/1.0: a stream ends with the connection
    bool sends_body = true;  // false: to HEAD
};

// Writes REPLY to CLIENT. Returns false if the connection is of no use any more. Throws what its
// stream throws; then the answer is cut off, and the connection must end.
[[nodiscard]] bool write_reply(const HttpReply& reply, const ReplyMode& mode, ReplySink& client);

// The bytes of an answer where no memory is left to make one, after which the connection ends.
inline constexpr std::string_view kNoMemoryReply =
    "HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nRetry-After: 1\r\n"
    "Content-Type: application/json\r\nContent-Length: 111\r\n\r\n"
    "{\"error\": {\"message\": \"no memory is left to answer this\", \"type\": \"server_error\", "
    "\"param\": null, \"code\": null}}";

}  // namespace dslaunch::server
