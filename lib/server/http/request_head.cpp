#include "server/http/request_head.h"

#include <algorithm>

#include "base/text.h"

namespace dslaunch::server {

namespace {

using Field = std::optional<std::string_view>;

constexpr size_t kLengthDigitsMax = 18;
constexpr size_t kFieldsMax = 200;

constexpr HttpRefusal kBadLine{400, "the first line must be METHOD /path HTTP/1.1"};
constexpr HttpRefusal kBadField{400, "a header line is not of the form `Name: value`"};
constexpr HttpRefusal kTwice{400, "a header field is given twice"};
constexpr HttpRefusal kBadLength{400, "Content-Length is not a number"};
constexpr HttpRefusal kBadHost{400, "the request has no valid Host header"};
constexpr HttpRefusal kBothLengths{400,
                                   "Transfer-Encoding and Content-Length cannot be used together"};
constexpr HttpRefusal kTooMany{431, "the request has too many header fields"};
constexpr HttpRefusal kNotChunked{501, "the only supported Transfer-Encoding is `chunked`"};
constexpr HttpRefusal kOldChunks{400, "HTTP/1.0 does not support Transfer-Encoding"};
constexpr HttpRefusal kOtherVersion{505, "this server supports only HTTP/1.0 and HTTP/1.1"};
constexpr HttpRefusal kOtherExpectation{417,
                                        "the only supported value of Expect is `100-continue`"};

char lowered(char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

bool is_letter_or_digit(char c) {
    return is_digit(c) || (lowered(c) >= 'a' && lowered(c) <= 'z');
}

bool is_token(std::string_view text) {
    constexpr std::string_view kMarks = "!#$%&'*+-.^_`|~";
    return !text.empty() && std::ranges::all_of(text, [&](char c) {
        return is_letter_or_digit(c) || kMarks.find(c) != kMarks.npos;
    });
}

// Returns true for characters that a field value may have. Bytes above ASCII are allowed, and are
// not interpreted here.
bool is_value_char(char c) {
    const auto byte = static_cast<unsigned char>(c);
    return c == '\t' || (byte >= 0x20 && byte != 0x7f);
}

bool is_host(std::string_view text) {
    constexpr std::string_view kMarks = ".-_:[]%~";
    return !text.empty() && std::ranges::all_of(text, [&](char c) {
        return is_letter_or_digit(c) || kMarks.find(c) != kMarks.npos;
    });
}

std::string_view without_blanks(std::string_view text) {
    const auto is_blank = [](char c) { return c == ' ' || c == '\t'; };
    while (!text.empty() && is_blank(text.front())) text.remove_prefix(1);
    while (!text.empty() && is_blank(text.back())) text.remove_suffix(1);
    return text;
}

// Removes one line, with its end, from the beginning of TEXT, and returns it. Returns nothing if no
// line ends with the required "\r\n".
Field take_line(std::string_view& text) {
    const size_t end = text.find("\r\n");
    if (end == text.npos) return std::nullopt;
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(end + 2);
    if (!std::ranges::all_of(line, is_value_char)) return std::nullopt;
    return line;
}

std::optional<HttpRefusal> read_first_line(std::string_view line, RequestHead& head) {
    const size_t method_end = line.find(' ');
    const size_t target_end = line.rfind(' ');
    if (method_end == line.npos || target_end <= method_end) return kBadLine;
    head.method = line.substr(0, method_end);
    const std::string_view target = line.substr(method_end + 1, target_end - method_end - 1);
    const std::string_view version = line.substr(target_end + 1);
    const bool is_visible =
        std::ranges::all_of(target, [](char c) { return c > 0x20 && c < 0x7f && c != '#'; });
    if (version.size() != 8 || !version.starts_with("HTTP/") || !is_digit(version[5]) ||
        version[6] != '.' || !is_digit(version[7]))
        return kBadLine;
    if (version != "HTTP/1.1" && version != "HTTP/1.0") return kOtherVersion;
    if (!is_token(head.method) || !target.starts_with('/') || !is_visible) return kBadLine;
    head.path = target.substr(0, target.find('?'));
    head.old = version == "HTTP/1.0";
    return std::nullopt;
}

// Header fields that only this file needs. They are not part of RequestHead.
struct Framing {
    Field length, transfer, expect;
};

struct SingleField {
    std::string_view name;
    Field* value;
};

void read_connection(std::string_view value, RequestHead& head) {
    while (!value.empty()) {
        const std::string_view word = value.substr(0, value.find(','));
        value.remove_prefix(std::min(word.size() + 1, value.size()));
        if (equal_ignoring_case(without_blanks(word), "close")) head.stays_open = false;
    }
}

std::optional<HttpRefusal> read_fields(std::string_view text, RequestHead& head, Framing& framing) {
    const SingleField singles[] = {
        {"host", &head.host},
        {"origin", &head.origin},
        {"authorization", &head.authorization},
        {"content-type", &head.content_type},
        {"content-encoding", &head.content_encoding},
        {"content-length", &framing.length},
        {"transfer-encoding", &framing.transfer},
        {"expect", &framing.expect},
    };
    for (size_t fields = 0; text != "\r\n"; ++fields) {
        if (fields == kFieldsMax) return kTooMany;
        const Field line = take_line(text);
        if (!line) return kBadField;
        const size_t colon = line->find(':');
        if (colon == line->npos || !is_token(line->substr(0, colon))) return kBadField;
        const std::string_view name = line->substr(0, colon);
        const std::string_view value = without_blanks(line->substr(colon + 1));
        if (equal_ignoring_case(name, "connection")) read_connection(value, head);
        for (const SingleField& single : singles) {
            if (!equal_ignoring_case(name, single.name)) continue;
            if (*single.value) return kTwice;
            *single.value = value;
        }
    }
    return std::nullopt;
}

std::optional<HttpRefusal> read_framing(const Framing& framing, RequestHead& head) {
    if (framing.length && framing.transfer) return kBothLengths;
    if (framing.transfer) {
        if (head.old) return kOldChunks;
        if (!equal_ignoring_case(*framing.transfer, "chunked")) return kNotChunked;
        head.chunked = true;
    }
    if (framing.length) {
        if (framing.length->empty() || framing.length->size() > kLengthDigitsMax ||
            !std::ranges::all_of(*framing.length, is_digit))
            return kBadLength;
        head.body_bytes = static_cast<uint64_t>(parse_int(*framing.length).value_or(0));
    }
    // Closes the connection after the answer: a body is unusual with methods other than POST, so a
    // proxy in front of the server may take the body for the next request.
    if (head.has_body() && head.method != "POST") head.stays_open = false;
    if (framing.expect) {
        if (!equal_ignoring_case(*framing.expect, "100-continue")) return kOtherExpectation;
        head.wants_continue = !head.old;
    }
    return std::nullopt;
}

}  // namespace

bool equal_ignoring_case(std::string_view a, std::string_view b) {
    return std::ranges::equal(a, b, {}, lowered, lowered);
}

std::optional<HttpRefusal> read_head(std::string_view text, RequestHead& head) {
    head = {};
    const Field line = take_line(text);
    if (!line) return kBadLine;
    if (auto refusal = read_first_line(*line, head)) return refusal;
    if (head.old) head.stays_open = false;
    Framing framing;
    if (auto refusal = read_fields(text, head, framing)) return refusal;
    if (head.host ? !is_host(*head.host) : !head.old) return kBadHost;
    return read_framing(framing, head);
}

}  // namespace dslaunch::server
