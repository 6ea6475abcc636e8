// The state that a save writes while training goes on, as it was at the end of a step. Values are
// read in place while nothing changes them. Before a unit is updated, the update waits for the
// disk, at most for the time that a copy would take. If the disk is slower, the rest of the unit is
// copied. Data path: ZeRO state -> snapshot -> checkpointer. Threads: the save's thread calls
// write_all(), and the communication lane before_update(). The rest is called between steps.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <span>
#include <vector>

#include "base/bytes.h"
#include "base/clock.h"
#include "runtime/state/saved_piece.h"
#include "storage/disk/io_arena.h"

namespace dslaunch::runtime {

// Returns the largest memory that a snapshot may use for copies: half of the memory that this
// process may still use. LOCAL_RANKS ranks share the memory of the host.
[[nodiscard]] Bytes memory_for_copies(int local_ranks);

// The values of one save; see the top of this file.
class Snapshot final : public UpdateGuard {
  public:
    // FETCH copies values to the host's memory if the host cannot read them in place
    // (SavableState::copy_values). Two threads call it.
    using Fetch = std::function<void(std::span<std::byte> into, const std::byte* values)>;
    // The values of PIECES must be in memory. Pieces with the same unit are updated together, and
    // must be adjacent in the list. COPIES_MAX limits the memory for copies. If the copy of a unit
    // does not fit in this memory, the unit's update waits until the unit is written. FETCH is
    // empty if the host can read the values in place.
    Snapshot(std::vector<SavedPiece> pieces, Bytes copies_max, Fetch fetch = {});

    // Passes the bytes of each piece to WRITE, in order, in spans of a few MiB. If WRITE throws,
    // the error ends the call and releases all units.
    using Write = std::function<void(const SavedPiece& piece, std::span<const std::byte> bytes)>;
    void write_all(const Write& write);

    void before_update(int unit) override;
    // Returns the total time that updates have spent waiting or copying.
    [[nodiscard]] Duration held_up() const;

  private:
    struct Span {
        size_t piece = 0;
        std::span<const std::byte> bytes;
        bool fetched = false;  // true if the bytes are in the host's memory
    };
    // The spans [first, end) of a unit. Spans before NEXT are written or being written.
    struct Unit {
        size_t first = 0;
        size_t end = 0;
        size_t next = 0;
        bool busy = false;     // true while the span before NEXT is being written
        bool copying = false;  // true while the rest is being copied
        bool copied = false;   // true once the rest is copied, so that updates need not wait
        storage::IoArena copy;
    };
    [[nodiscard]] Bytes bytes_left(const Unit& unit) const;
    void copy_rest(std::unique_lock<std::mutex>& lock, Unit& unit);
    void release();

    std::vector<SavedPiece> pieces_;
    Fetch fetch_;
    std::vector<Span> spans_;
    std::vector<Unit> units_;      // units in the order of writing
    std::vector<int> unit_of_id_;  // unit of each id; -1: none
    Bytes copies_left_;
    mutable std::mutex mutex_;
    std::condition_variable changed_;
    bool ended_ = false;
    bool slow_ = false;  // true once a wait for a unit was too long
    Duration held_up_{0};
};

}  // namespace dslaunch::runtime
