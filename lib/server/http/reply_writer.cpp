#include "server/http/reply_writer.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <initializer_list>

namespace dslaunch::server {

namespace {

struct Reason {
    int status;
    std::string_view words;
};
constexpr Reason kReasons[] = {{200, "OK"},
                               {400, "Bad Request"},
                               {401, "Unauthorized"},
                               {403, "Forbidden"},
                               {404, "Not Found"},
                               {405, "Method Not Allowed"},
                               {408, "Request Timeout"},
                               {413, "Content Too Large"},
                               {415, "Unsupported Media Type"},
                               {417, "Expectation Failed"},
                               {429, "Too Many Requests"},
                               {431, "Request Header Fields Too Large"},
                               {499, "Client Closed Request"},
                               {501, "Not Implemented"},
                               {503, "Service Unavailable"},
                               {505, "HTTP Version Not Supported"}};

std::string_view reason_of(int status) {
    const auto* const reason = std::ranges::find(kReasons, status, &Reason::status);
    return reason == std::end(kReasons) ? "Internal Server Error" : reason->words;
}

// A text with a fixed maximum length, which allocates nothing.
struct ShortText {
    std::array<char, 512> bytes;
    size_t numel = 0;

    ShortText& add(std::string_view text) {
        const size_t taken = std::min(text.size(), bytes.size() - numel);
        std::copy_n(text.data(), taken, bytes.data() + numel);
        numel += taken;
        return *this;
    }
    ShortText& add(size_t number, int base = 10) {
        std::array<char, 24> digits;
        const auto end = std::to_chars(digits.begin(), digits.end(), number, base).ptr;
        return add({digits.data(), static_cast<size_t>(end - digits.data())});
    }
    [[nodiscard]] std::string_view view() const { return {bytes.data(), numel}; }
};

ShortText head_of(const HttpReply& reply, const ReplyMode& mode) {
    ShortText head;
    head.add("HTTP/1.1 ").add(static_cast<size_t>(reply.status)).add(" ");
    head.add(reason_of(reply.status)).add("\r\nContent-Type: ").add(reply.type);
    head.add("\r\nConnection: ").add(mode.stays_open ? "keep-alive\r\n" : "close\r\n");
    head.add(reply.fields);
    if (reply.status == 401) head.add("WWW-Authenticate: Bearer\r\n");
    if (reply.status == 429 || reply.status == 503) head.add("Retry-After: 1\r\n");
    if (!reply.stream) {
        head.add("Content-Length: ").add(reply.body.size()).add("\r\n");
    } else {
        head.add("Cache-Control: no-cache\r\n");
        if (!mode.old) head.add("Transfer-Encoding: chunked\r\n");
    }
    head.add("\r\n");
    return head;
}

// Sends small parts in one write, so that the client receives them together.
bool write_joined(ReplySink& client, std::initializer_list<std::string_view> parts) {
    std::array<char, 4096> joined;
    size_t numel = 0;
    for (const std::string_view part : parts) numel += part.size();
    if (numel > joined.size())
        return std::ranges::all_of(parts, [&](auto part) { return client.write(part); });
    char* end = joined.data();
    for (const std::string_view part : parts) end = std::ranges::copy(part, end).out;
    return client.write({joined.data(), numel});
}

bool write_stream(const HttpReply& reply, const ReplyMode& mode, ReplySink& client) {
    for (;;) {
        const HttpReply::Piece piece = reply.stream();
        if (!piece.text.empty() && mode.old && !client.write(piece.text)) return false;
        if (!piece.text.empty() && !mode.old) {
            ShortText size;
            size.add(piece.text.size(), 16).add("\r\n");
            if (!write_joined(client, {size.view(), piece.text, "\r\n"})) return false;
        }
        if (piece.last) return mode.old || client.write("0\r\n\r\n");
        if (!client.is_there()) return false;
    }
}

}  // namespace

bool write_reply(const HttpReply& reply, const ReplyMode& mode, ReplySink& client) {
    const ShortText head = head_of(reply, mode);
    if (!mode.sends_body) return client.write(head.view());
    if (!reply.stream) return write_joined(client, {head.view(), reply.body});
    return client.write(head.view()) && write_stream(reply, mode, client);
}

}  // namespace dslaunch::server
