#include "server/http/request_head.h"

#include <string>

#include "support/catch.h"

namespace dslaunch::server {
namespace {

std::string with_fields(const std::string& fields) {
    return "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n" + fields + "\r\n";
}

int status_of(const std::string& text) {
    RequestHead head;
    const auto refusal = read_head(text, head);
    return refusal ? refusal->status : 200;
}

TEST_CASE("a head is read as it was sent") {
    RequestHead head;
    REQUIRE_FALSE(
        read_head("POST /v1/x%20y?a=b&c HTTP/1.1\r\nhOST:  [::1]:80\t\r\n"
                  "Authorization: Bearer a%20b:c\r\nContent-Length: 012\r\n"
                  "X-Other: \xff: \t\r\nExpect: 100-Continue\r\nRange: bytes=0-\r\n\r\n",
                  head));
    CHECK(head.method == "POST");
    CHECK(head.path == "/v1/x%20y");
    CHECK(head.host == "[::1]:80");
    CHECK(head.authorization == "Bearer a%20b:c");
    CHECK(head.body_bytes == 12);
    CHECK_FALSE(head.chunked);
    CHECK(head.stays_open);
    CHECK(head.wants_continue);
    CHECK_FALSE(head.origin);
    REQUIRE_FALSE(
        read_head(with_fields("Transfer-Encoding: CHUNKED\r\nConnection: TE, Close\r\n"), head));
    CHECK(head.chunked);
    CHECK_FALSE(head.stays_open);
    REQUIRE_FALSE(read_head("GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\n", head));
    CHECK_FALSE(head.stays_open);
    REQUIRE_FALSE(read_head("GET / HTTP/1.0\r\n\r\n", head));
    CHECK(head.old);
    CHECK_FALSE(head.stays_open);
    CHECK_FALSE(head.has_body());
}

TEST_CASE("a head that others could read otherwise is refused") {
    const struct {
        std::string text;
        int status;
    } rows[] = {
        {with_fields("Content-Length: 5\n"), 400},
        {with_fields("Content-Length : 5\r\n"), 400},
        {with_fields("Content-Length:\r\n 5\r\n"), 400},
        {with_fields(" Content-Length: 5\r\n"), 400},
        {with_fields("Content-Length: %35\r\n"), 400},
        {with_fields("Content-Length: 5, 5\r\n"), 400},
        {with_fields("Content-Length: +5\r\n"), 400},
        {with_fields("Content-Length: -5\r\n"), 400},
        {with_fields("Content-Length: 0x5\r\n"), 400},
        {with_fields("Content-Length: 5 5\r\n"), 400},
        {with_fields("Content-Length:\r\n"), 400},
        {with_fields("Content-Length: 99999999999999999999\r\n"), 400},
        {with_fields("Content-Length: 5\r\nContent-Length: 5\r\n"), 400},
        {with_fields("Content-Length: 5\r\ncontent-length: 6\r\n"), 400},
        {with_fields("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n"), 400},
        {with_fields("Transfer-Encoding: chunked\r\nContent-Length: 0\r\n"), 400},
        {with_fields("Transfer-Encoding : chunked\r\n"), 400},
        {with_fields("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n"), 400},
        {with_fields("Transfer-Encoding: identity\r\n"), 501},
        {with_fields("Transfer-Encoding: gzip, chunked\r\n"), 501},
        {with_fields("Transfer-Encoding: xchunked\r\n"), 501},
        {with_fields("Transfer-Encoding: %63hunked\r\n"), 501},
        {with_fields("Transfer-Encoding:\r\n"), 501},
        {with_fields("Transfer-Encoding: \vchunked\r\n"), 400},
        {with_fields("A\r\n"), 400},
        {with_fields(": b\r\n"), 400},
        {with_fields("A b: c\r\n"), 400},
        {with_fields("A: b\rc\r\n"), 400},
        {with_fields(std::string("A: b\0c\r\n", 8)), 400},
        {with_fields("A: \x7f\r\n"), 400},
        {with_fields("\xc3\xa4: b\r\n"), 400},
        {with_fields("Host: localhost\r\n"), 400},
        {with_fields("Authorization: a\r\nAuthorization: b\r\n"), 400},
        {with_fields("Origin: a\r\nOrigin: b\r\n"), 400},
        {with_fields("Content-Type: a\r\nContent-Type: b\r\n"), 400},
        {with_fields("Expect: a-lot\r\n"), 417},
        {"GET / HTTP/1.1\r\n\r\n", 400},
        {"GET / HTTP/1.1\r\nHost:\r\n\r\n", 400},
        {"GET / HTTP/1.1\r\nHost: a/b\r\n\r\n", 400},
        {"GET / HTTP/1.1\r\nHost: a, b\r\n\r\n", 400},
        {"GET / HTTP/1.1\r\nHost: a@b\r\n\r\n", 400},
        {"GET / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", 400},
        {"GET http://evil/ HTTP/1.1\r\nHost: a\r\n\r\n", 400},
        {"OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n", 400},
        {"CONNECT a:80 HTTP/1.1\r\nHost: a\r\n\r\n", 400},
        {"GET  / HTTP/1.1\r\nHost: a\r\n\r\n", 400},
        {"GET / a HTTP/1.1\r\nHost: a\r\n\r\n", 400},
        {"GET /\t HTTP/1.1\r\nHost: a\r\n\r\n", 400},
        {"GET /#a HTTP/1.1\r\nHost: a\r\n\r\n", 400},
        {" GET / HTTP/1.1\r\nHost: a\r\n\r\n", 400},
        {"G\xc3\xa4T / HTTP/1.1\r\nHost: a\r\n\r\n", 400},
        {"GET / http/1.1\r\nHost: a\r\n\r\n", 400},
        {"GET / HTTP/1.1 \r\nHost: a\r\n\r\n", 400},
        {"GET / HTTP/11\r\nHost: a\r\n\r\n", 400},
        {"GET /\r\n\r\n", 400},
        {"\r\n", 400},
        {"GET / HTTP/1.2\r\nHost: a\r\n\r\n", 505},
        {"PRI / HTTP/2.0\r\nHost: a\r\n\r\n", 505},
    };
    for (const auto& row : rows) {
        INFO(row.text);
        CHECK(status_of(row.text) == row.status);
    }
    CHECK(status_of(with_fields("")) == 200);
    std::string many;
    for (int i = 0; i < 300; ++i) many += "A: b\r\n";
    CHECK(status_of(with_fields(many)) == 431);
}

}  // namespace
}  // namespace dslaunch::server
