// A request from the bytes of a connection, in pieces of any size: the head, then the body by its
// length or in chunks. Data path: sockets -> [here] -> connection_server.h. One thread; it does not
// block.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "server/http/memory_account.h"
#include "server/http/request_head.h"

namespace dslaunch::server {

struct RequestLimits {
    size_t head_bytes_max = size_t{64} << 10;
    size_t body_bytes_max = size_t{16} << 20;
};

class RequestReader {
  public:
    // ACCOUNT pays for the body and for a long head, and must outlive this.
    RequestReader(const RequestLimits& limits, MemoryAccount& account);
    RequestReader(const RequestReader&) = delete;
    RequestReader& operator=(const RequestReader&) = delete;

    enum class State {
        kHead,      // bytes of the head are missing
        kHeadRead,  // read_body() or reset() is next
        kBody,      // bytes of the body are missing
        kWhole,
        kRefused,  // refusal() says why; no byte that follows is one of a request
    };
    // Takes bytes from the front of BYTES, up to the end of the head or of the request. Returns how
    // many.
    size_t take(std::string_view bytes);
    // Returns the bytes that the account must have left for NUMEL more bytes of a body.
    [[nodiscard]] int64_t growth(size_t numel) const;
    // REQUIRES: kHeadRead.
    void read_body();
    // Begins another request.
    void reset();

    [[nodiscard]] State state() const { return state_; }
    // REQUIRES: a state after kHead that is not kRefused. Valid until reset().
    [[nodiscard]] const RequestHead& head() const { return head_; }
    [[nodiscard]] std::string& body() { return body_; }
    // Returns the lease of the body's bytes; an answer's work is charged to it, too.
    [[nodiscard]] MemoryLease& lease() { return lease_; }
    // REQUIRES: kRefused.
    [[nodiscard]] const HttpRefusal& refusal() const { return refusal_; }

  private:
    enum class ChunkPart { kSize, kSizeEnd, kData, kDataEnd, kDataLineEnd, kLastEnd, kLastLineEnd };

    size_t take_head(std::string_view bytes);
    // Returns the place after the head's end in BYTES; npos: it is not there. Refuses bytes that no
    // head has.
    [[nodiscard]] size_t end_of_head(std::string_view bytes);
    size_t take_length(std::string_view bytes);
    size_t take_chunks(std::string_view bytes);
    void take_mark(char c);
    void take_size_digit(char c);
    [[nodiscard]] bool append(std::string_view bytes);
    // Returns the longest that the body can become.
    [[nodiscard]] size_t body_max() const {
        return head_.chunked ? limits_.body_bytes_max : head_.body_bytes;
    }
    void refuse(const HttpRefusal& refusal);

    RequestLimits limits_;
    State state_ = State::kHead;
    MemoryLease lease_;
    std::string head_text_;
    char last_ = '\0';           // of the head
    bool line_is_empty_ = true;  // so far
    RequestHead head_;
    HttpRefusal refusal_;
    std::string body_;
    ChunkPart part_ = ChunkPart::kSize;
    uint64_t chunk_bytes_ = 0;  // that are missing
    int chunk_digits_ = 0;
};

}  // namespace dslaunch::server
