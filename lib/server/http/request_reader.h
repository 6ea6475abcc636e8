// Reads a request from the bytes of a connection, which may arrive in pieces of any size: the head,
// then the body by its length or in chunks. Data path: sockets -> [here] -> connection_server.h.
// One thread; does not block.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "server/http/request_budget.h"
#include "server/http/request_head.h"

namespace dslaunch::server {

// The limits of a request; a request that exceeds one is refused.
struct RequestLimits {
    size_t head_bytes_max = size_t{64} << 10;
    size_t body_bytes_max = size_t{16} << 20;
};

// Reads the requests of one connection, one after the other.
class RequestReader {
  public:
    // BUDGET is charged for the body and for a long head; it must outlive this object.
    RequestReader(const RequestLimits& limits, RequestBudget& budget);
    RequestReader(const RequestReader&) = delete;
    RequestReader& operator=(const RequestReader&) = delete;

    // The part of the request that has been read.
    enum class State {
        kHead,      // the head is not complete
        kHeadRead,  // read_body() or reset() is next
        kBody,      // the body is not complete
        kWhole,
        kRefused,  // refusal() says why; later bytes are not read as a request
    };
    // Reads bytes from the beginning of BYTES, up to the end of the head or of the request. Returns
    // the number of bytes read.
    size_t take(std::string_view bytes);
    // Returns the bytes that the reader will take from the budget for NUMEL more bytes of a body.
    [[nodiscard]] int64_t growth(size_t numel) const;
    // Begins the body. REQUIRES: state() is kHeadRead.
    void read_body();
    // Prepares for another request.
    void reset();

    // Returns the state after the last call.
    [[nodiscard]] State state() const { return state_; }
    // REQUIRES: the head has been read, and the request is not refused. The results are valid until
    // reset().
    [[nodiscard]] const RequestHead& head() const { return head_; }
    [[nodiscard]] std::string& body() { return body_; }
    // Returns the lease for the body's bytes; the work on the answer is charged to it too.
    [[nodiscard]] MemoryLease& lease() { return lease_; }
    // REQUIRES: state() is kRefused.
    [[nodiscard]] const HttpRefusal& refusal() const { return refusal_; }

  private:
    enum class ChunkPart { kSize, kSizeEnd, kData, kDataEnd, kDataLineEnd, kLastEnd, kLastLineEnd };

    size_t take_head(std::string_view bytes);
    // Returns the position in BYTES after the head's end; npos if the end is not in BYTES. Refuses
    // bytes that a head cannot contain.
    [[nodiscard]] size_t end_of_head(std::string_view bytes);
    size_t take_length(std::string_view bytes);
    size_t take_chunks(std::string_view bytes);
    void take_mark(char c);
    void take_size_digit(char c);
    [[nodiscard]] bool append(std::string_view bytes);
    // Returns the largest size that the body can have.
    [[nodiscard]] size_t body_max() const {
        return head_.chunked ? limits_.body_bytes_max : head_.body_bytes;
    }
    void refuse(const HttpRefusal& refusal);

    RequestLimits limits_;
    State state_ = State::kHead;
    MemoryLease lease_;
    std::string head_text_;
    char last_ = '\0';           // the last byte of the head
    bool line_is_empty_ = true;  // the current line has no byte yet
    RequestHead head_;
    HttpRefusal refusal_;
    std::string body_;
    ChunkPart part_ = ChunkPart::kSize;
    uint64_t chunk_bytes_ = 0;  // bytes of the chunk that are still to come
    int chunk_digits_ = 0;
};

}  // namespace dslaunch::server
