// The head of a request in HTTP/1: its first line and its fields, read so strictly that nothing on
// the way can have understood it otherwise. Data path: bytes -> request_reader.h -> [here] ->
// connection_server.h. Pure; nothing is allocated.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace dslaunch::server {

// The reason why bytes are not a request, or are not taken.
struct HttpRefusal {
    int status = 400;
    const char* why = "";  // for ever
};

// Views of the bytes from which the head was read.
struct RequestHead {
    std::string_view method;
    std::string_view path;  // without its query after a question mark; as it was sent
    std::optional<std::string_view> host, origin, authorization, content_type, content_encoding;
    bool chunked = false;
    uint64_t body_bytes = 0;  // 0 of one in chunks
    bool has_body() const { return chunked || body_bytes > 0; }
    bool stays_open = true;  // the client may send another request
    bool old = false;        // HTTP/1.0, which knows no chunks
    bool wants_continue = false;
};

// Reads TEXT, a head with the empty line at its end, into HEAD. Returns why it is refused: it is
// not in the grammar of RFC 9112, or others read it otherwise (lines folded or without a carriage
// return, a blank before a colon, a field twice that may be there once, a length beside chunks).
[[nodiscard]] std::optional<HttpRefusal> read_head(std::string_view text, RequestHead& head);

[[nodiscard]] bool equal_ignoring_case(std::string_view a, std::string_view b);

}  // namespace dslaunch::server
