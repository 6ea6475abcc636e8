// What a save writes while training goes on: the state as it was at the end of a step, read in
// place as long as nothing changes it. Before something does, it waits as long as a copy would
// take; where the disk is slower than that, the rest is copied away. Where it stands: ZeRO state ->
// snapshot -> checkpointer. Threads: write_all() by the save's thread,
// before_update() by the communication lane, the rest between steps.
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

class Snapshot final : public UpdateGuard {
  public:
    // PIECES: all in memory, those of a unit one after the other. COPIES_MAX: memory for copies;
    // where it does not do, an update waits until its unit is written.
    Snapshot(std::vector<SavedPiece> pieces, Bytes copies_max);

    // Gives WRITE the bytes of each piece in order, in spans of some MiB. What WRITE throws ends
    // it and frees all units.
    using Write = std::function<void(const SavedPiece& piece, std::span<const std::byte> bytes)>;
    void write_all(const Write& write);

    void before_update(int unit) override;
    // Time that updates have waited or copied.
    [[nodiscard]] Duration held_up() const;

  private:
    struct Span {
        size_t piece = 0;
        std::span<const std::byte> bytes;
    };
    // Spans [first, end), of which those before NEXT are done or being written.
    struct Unit {
        size_t first = 0;
        size_t end = 0;
        size_t next = 0;
        bool busy = false;     // the span before NEXT is being written
        bool copying = false;  // what is left is being copied
        bool copied = false;   // and no update is waited for
        storage::IoArena copy;
    };
    [[nodiscard]] Bytes bytes_left(const Unit& unit) const;
    void copy_rest(std::unique_lock<std::mutex>& lock, Unit& unit);
    void release();

    std::vector<SavedPiece> pieces_;
    std::vector<Span> spans_;
    std::vector<Unit> units_;      // in the order of writing
    std::vector<int> unit_of_id_;  // -1: none
    Bytes copies_left_;
    mutable std::mutex mutex_;
    std::condition_variable changed_;
    bool ended_ = false;
    bool slow_ = false;  // a unit was waited for in vain
    Duration held_up_{0};
};

}  // namespace dslaunch::runtime
