#include "server/http/request_reader.h"

#include <algorithm>
#include <string>
#include <vector>

#include "support/catch.h"

namespace dslaunch::server {
namespace {

using State = RequestReader::State;

constexpr RequestLimits kLimits{256, 100};

struct Outcome {
    State state = State::kHead;
    int status = 200;  // of a refusal
    std::string body;
    size_t left = 0;  // bytes that do not belong to the request
    bool operator==(const Outcome&) const = default;
};

// Reads BYTES in pieces of STEP.
Outcome outcome_of(std::string_view bytes, size_t step, int64_t account_bytes = 1 << 20) {
    RequestBudget account(account_bytes);
    Outcome outcome;
    {
        RequestReader reader(kLimits, account);
        while (!bytes.empty() && reader.state() != State::kWhole &&
               reader.state() != State::kRefused) {
            std::string_view piece = bytes.substr(0, step);
            while (!piece.empty()) {
                const size_t taken = reader.take(piece);
                piece.remove_prefix(taken);
                bytes.remove_prefix(taken);
                if (reader.state() == State::kHeadRead) {
                    reader.read_body();
                } else if (taken == 0) {
                    break;
                }
            }
        }
        outcome = {reader.state(), 200, "", bytes.size()};
        if (reader.state() == State::kRefused) outcome.status = reader.refusal().status;
        if (reader.state() == State::kWhole) outcome.body = reader.body();
        CHECK(account.bytes_taken() <= account_bytes);
    }
    CHECK(account.bytes_taken() == 0);
    return outcome;
}

const std::string kPost = "POST / HTTP/1.1\r\nHost: a\r\n";

TEST_CASE("a request is the same in pieces of any size") {
    const struct {
        std::string bytes;
        State state;
        int status;
        std::string body;
        size_t left;
    } rows[] = {
        {kPost + "\r\nGET", State::kWhole, 200, "", 3},
        {kPost + "Content-Length: 5\r\n\r\nabcdeGET", State::kWhole, 200, "abcde", 3},
        {kPost + "Content-Length: 5\r\n\r\nabcd", State::kBody, 200, "", 0},
        {kPost + "Content-Length: 101\r\n\r\nabcd", State::kRefused, 413, "", 4},
        {kPost + "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n00A\r\n0123456789\r\n0\r\n\r\nGET",
         State::kWhole, 200, "abc0123456789", 3},
        {kPost + "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", State::kWhole, 200, "", 0},
        {kPost + "Transfer-Encoding: chunked\r\n\r\n0\r\n", State::kBody, 200, "", 0},
        {kPost + "A: b", State::kHead, 200, "", 0},
    };
    for (const auto& row : rows)
        for (const size_t step : {1, 2, 3, 7, 1000}) {
            INFO(row.bytes << " in pieces of " << step);
            CHECK(outcome_of(row.bytes, step) ==
                  Outcome{row.state, row.status, row.body, row.left});
        }
}

TEST_CASE("bytes that are no request are refused, in pieces of any size") {
    const std::string chunked = kPost + "Transfer-Encoding: chunked\r\n\r\n";
    const struct {
        std::string bytes;
        int status;
    } rows[] = {
        {"\r\n" + kPost + "\r\n", 400},
        {"\n" + kPost + "\r\n", 400},
        {"GET / HTTP/1.1\nHost: a\n\n", 400},
        {kPost + "A: b\n\r\n", 400},
        {kPost + "A: b\rc", 400},
        {kPost + "A: b\r\r\n", 400},
        {std::string("GET\0", 4), 400},
        {"\x16\x03\x01", 400},
        {kPost + "A: " + std::string(300, 'a'), 431},
        {chunked + "-5\r\n", 400},
        {chunked + "+5\r\n", 400},
        {chunked + "0x5\r\n", 400},
        {chunked + " 5\r\n", 400},
        {chunked + "5 \r\n", 400},
        {chunked + "5;a=b\r\n", 400},
        {chunked + "5\n", 400},
        {chunked + "\r\n", 400},
        {chunked + "g\r\n", 400},
        {chunked + "000000005\r\n", 400},
        {chunked + "fffffffff\r\n", 400},
        {chunked + "3\r\nabcd\r\n", 400},
        {chunked + "3\r\nabc\n", 400},
        {chunked + "3\r\nabc\rx", 400},
        {chunked + "0\r\nTrailer: a\r\n\r\n", 400},
        {chunked + "0\r\n\rx", 400},
        {chunked + "65\r\n", 413},
        {chunked + "ffffffff\r\n", 413},
        {chunked + "60\r\n" + std::string(96, 'a') + "\r\n5\r\naaaaa", 413},
    };
    for (const auto& row : rows)
        for (const size_t step : {1, 2, 5, 1000}) {
            INFO(row.bytes << " in pieces of " << step);
            const Outcome outcome = outcome_of(row.bytes, step);
            CHECK(outcome.state == State::kRefused);
            CHECK(outcome.status == row.status);
        }
}

TEST_CASE("a body is refused where other requests have taken the memory, a short head is not") {
    const std::string body = kPost + "Content-Length: 100\r\n\r\n" + std::string(100, 'a');
    for (const size_t step : {1, 30, 1000}) {
        CHECK(outcome_of(body, step, 400).state == State::kWhole);
        const Outcome refused = outcome_of(body, step, 60);
        CHECK(refused.state == State::kRefused);
        CHECK(refused.status == 503);
        CHECK(outcome_of(kPost + "\r\n", step, 0).state == State::kWhole);
    }
}

TEST_CASE("a reader that is reset reads the next request with nothing of the last one") {
    RequestBudget account(1000);
    RequestReader reader(kLimits, account);
    const std::string first = kPost + "Content-Length: 3\r\n\r\nabc";
    size_t taken = reader.take(first);
    reader.read_body();
    taken += reader.take(std::string_view(first).substr(taken));
    REQUIRE(reader.state() == State::kWhole);
    CHECK(taken == first.size());
    CHECK(reader.body() == "abc");
    reader.reset();
    CHECK(reader.state() == RequestReader::State::kHead);
    CHECK(account.bytes_taken() == 0);
    CHECK(reader.take("GET /health HTTP/1.1\r\nHost: a\r\n\r\n") == 33);
    reader.read_body();
    CHECK(reader.state() == State::kWhole);
    CHECK(reader.body().empty());
    CHECK(reader.head().path == "/health");
}

}  // namespace
}  // namespace dslaunch::server
