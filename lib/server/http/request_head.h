// The head of an HTTP/1 request: its first line and its fields, read so strictly that no proxy can
// have understood it differently. Data path: bytes -> request_reader.h -> [here] ->
// connection_server.h. Pure; allocates nothing.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace dslaunch::server {

// The reason why bytes are not a request, or are not accepted.
struct HttpRefusal {
    int status = 400;
    const char* why = "";  // a string literal
};

// The parts of a head, as views into the bytes that were read.
struct RequestHead {
    std::string_view method;
    std::string_view path;  // as it was sent, without the query after a question mark
    std::optional<std::string_view> host, origin, authorization, content_type, content_encoding;
    bool chunked = false;
    uint64_t body_bytes = 0;  // 0 if the body comes in chunks
    // Returns true if bytes follow the head.
    [[nodiscard]] bool has_body() const { return chunked || body_bytes > 0; }
    bool stays_open = true;  // the client may send another request
    bool old = false;        // HTTP/1.0, which has no chunks
    bool wants_continue = false;
};

// Parses TEXT, a head with the empty line at its end, into HEAD. Returns the reason if TEXT is
// refused, because it violates RFC 9112 or because other programs might read it differently.
// Examples are folded lines, lines without a carriage return, a blank before a colon, a repeated
// field that may occur only once, and a length together with chunks.
[[nodiscard]] std::optional<HttpRefusal> read_head(std::string_view text, RequestHead& head);

// Returns true if A and B are equal when the case of ASCII letters is ignored.
[[nodiscard]] bool equal_ignoring_case(std::string_view a, std::string_view b);

}  // namespace dslaunch::server
