// The requests of a block file and the pieces in which they move: the next piece, the rest of a
// short one, and when a request is done. Shared by the engines. One thread at a time.
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

struct QueueLimits {
    Bytes block = mib(1);   // the largest piece; a multiple of kBlockAlignment
    int depth = 8;          // pieces in flight
    int requests_max = 64;  // tickets at once
    int threads_max = 64;   // the thread engine's threads, each with a piece

    [[nodiscard]] QueueLimits with_depth_max(int depth_max) const {
        QueueLimits limits = *this;
        limits.depth = std::min(depth, depth_max);
        return limits;
    }
};

// A part of a request that lies in one file.
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

class RequestTable {
  public:
    RequestTable(const StripeLayout& layout, const QueueLimits& limits);

    // Returns the request's entry. REQUIRES: fewer than requests_max are there.
    [[nodiscard]] uint32_t add(const IoRequest& request);

    // Returns the next piece to start, which is in flight from then on, of requests in the order
    // they came. Returns nullopt if no piece is left, or depth pieces are in flight.
    [[nodiscard]] std::optional<Piece> next();

    // Books the result of reading or writing PIECE: bytes, or negative errno. Returns a piece to be
    // started again in its place: the rest of a short one, or all of an interrupted one (at most
    // kRepeatsMax times). No more pieces of a failed request are started.
    [[nodiscard]] std::optional<Piece> complete(const Piece& piece, int64_t result);

    // Returns how many of the request's first bytes have moved without a hole.
    [[nodiscard]] int64_t front_bytes(uint32_t entry) const { return entries_[entry].front_bytes; }
    [[nodiscard]] bool finished(uint32_t entry) const;
    // Returns the result of a finished request and frees its entry.
    IoResult take(uint32_t entry);
    // Does what take() does, now or as soon as it is finished.
    void abandon(uint32_t entry);
    // Starts no further piece of any request.
    void stop_all();

    [[nodiscard]] int in_flight() const { return in_flight_; }
    // Returns the pieces of ENTRY in flight or not yet started; the latter are an estimate.
    [[nodiscard]] int64_t pieces_left(uint32_t entry) const;
    [[nodiscard]] const QueueLimits& limits() const { return limits_; }

    static constexpr int kRepeatsMax = 64;

  private:
    // Bytes of a request, counted from its first.
    struct Moved {
        int64_t begin_bytes = 0;
        int64_t length_bytes = 0;
    };
    struct Entry {
        bool used = false;
        bool abandoned = false;
        IoRequest request;
        int64_t started_bytes = 0;
        int64_t front_bytes = 0;
        std::vector<Moved> moved;  // after the front
        int in_flight = 0;
        bool failed = false;
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

// The part of a block file that both engines share.
class QueuedBlockFile : public BlockFile {
  public:
    [[nodiscard]] Bytes capacity() const final { return files_.capacity; }
    [[nodiscard]] const std::string& path_at(int64_t offset_bytes) const final {
        return files_.path_at(offset_bytes);
    }

  protected:
    // FILES must outlive this object. LIMITS' depth is at most DEPTH_MAX.
    QueuedBlockFile(const BackingFiles& files, const QueueLimits& limits, int depth_max)
        : files_(files), table_(files.layout, limits.with_depth_max(depth_max)) {}
    [[nodiscard]] BlockFileFacts facts_of(const char* engine, bool registered_memory) const {
        return {engine, registered_memory, table_.limits().depth, table_.limits().block};
    }

    const BackingFiles& files_;
    RequestTable table_;
};

}  // namespace dslaunch::storage
