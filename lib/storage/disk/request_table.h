// The requests of a block file and the pieces into which they are divided. The table decides which
// piece comes next, whether the rest of a short transfer needs a new piece, and when a request is
// done. Shared by the engines. One thread at a time.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "storage/disk/backing_files.h"
#include "storage/disk/block_file.h"

namespace dslaunch::storage {

// The limits of one block file.
struct QueueLimits {
    Bytes block = mib(1);   // the largest piece; a multiple of kBlockAlignment
    int depth = 8;          // pieces in flight
    int requests_max = 64;  // tickets at once
    int threads_max = 64;   // the thread engine's threads, each with a piece

    // Returns these limits with a depth of at most DEPTH_MAX.
    [[nodiscard]] QueueLimits with_depth_max(int depth_max) const {
        QueueLimits limits = *this;
        limits.depth = std::min(depth, depth_max);
        return limits;
    }
};

// A part of a request that is in one file.
struct Piece {
    uint32_t entry = 0;
    IoDirection direction = IoDirection::kRead;
    int file = 0;
    int64_t file_offset_bytes = 0;
    int64_t offset_bytes = 0;  // begin of the piece in the block file
    std::byte* memory = nullptr;
    int64_t length_bytes = 0;
    int repeats = 0;  // after EINTR or EAGAIN
};

// The requests that are not done, or whose results were not taken.
class RequestTable {
  public:
    RequestTable(const StripeLayout& layout, const QueueLimits& limits);

    // Adds REQUEST and returns its entry. REQUIRES: there are fewer than requests_max requests.
    [[nodiscard]] uint32_t add(const IoRequest& request);

    // Returns the next piece to start. Requests are served in the order in which they were added.
    // The piece counts as in flight from then on. Returns nullopt if no piece is left or `depth`
    // pieces are in flight.
    [[nodiscard]] std::optional<Piece> next();

    // Records the RESULT of reading or writing PIECE: a number of bytes, or a negative errno.
    // Returns a piece that must be started instead: the rest of PIECE if the transfer was short, or
    // all of PIECE if it was interrupted (at most kRepeatsMax times). No more pieces of a failed
    // request are started.
    [[nodiscard]] std::optional<Piece> complete(const Piece& piece, int64_t result);

    // Returns how many bytes, from the request's first byte on, have been transferred without a
    // gap.
    [[nodiscard]] int64_t front_bytes(uint32_t entry) const { return entries_[entry].front_bytes; }
    // Returns true if no piece of the request is left or in flight; take() may then be called.
    [[nodiscard]] bool is_finished(uint32_t entry) const;
    // Returns the result of a finished request and frees its entry.
    IoResult take(uint32_t entry);
    // Calls take() for ENTRY, now or as soon as it is finished.
    void abandon(uint32_t entry);
    // Starts no further piece of any request.
    void stop_all();

    // Returns the number of pieces in flight, of all requests.
    [[nodiscard]] int in_flight() const { return in_flight_; }
    // Returns how many pieces of ENTRY are in flight or not yet started. The number of pieces that
    // are not yet started is an estimate.
    [[nodiscard]] int64_t pieces_left(uint32_t entry) const;
    // Returns the limits that the constructor got.
    [[nodiscard]] const QueueLimits& limits() const { return limits_; }

    static constexpr int kRepeatsMax = 64;

  private:
    // A range of a request's bytes, counted from its first byte.
    struct Moved {
        int64_t begin_bytes = 0;
        int64_t length_bytes = 0;
    };
    struct Entry {
        bool is_used = false;
        bool is_abandoned = false;
        IoRequest request;
        int64_t started_bytes = 0;
        int64_t front_bytes = 0;
        std::vector<Moved> moved;  // transferred ranges after the front
        int in_flight = 0;
        bool has_failed = false;
        IoResult result;
    };
    static void book_moved(Entry& entry, Moved moved);
    void book_failure(Entry& entry, const Piece& piece, int error_number);
    void release_if_abandoned(uint32_t index);

    StripeLayout layout_;
    QueueLimits limits_;
    std::vector<Entry> entries_;
    std::vector<uint32_t> free_;
    std::deque<uint32_t> waiting_;  // requests with pieces that are not started
    int in_flight_ = 0;
};

}  // namespace dslaunch::storage
