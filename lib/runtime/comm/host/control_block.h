// The first bytes of an arena: its head, poison, process ids, generation words and the mailbox.
// Only arena.cpp and host_group.cpp use it. All zeros is a valid start, so a new memfd needs no
// initialisation except the head. Threads: every field is atomic except the poison text and the
// mailbox, which are guarded by the poison state and by generation words.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/bytes.h"

namespace dslaunch::runtime {

// The signals that precede the other signals in every layout. The host group uses them.
enum InternalSignal : int { kSignalEntered, kSignalBarrier, kSignalMailFull, kSignalMailRead };
inline constexpr int kInternalSignals = 4;
inline constexpr int64_t kMailboxBytes = int64_t{32} * 1024;  // bytes of each local rank's mailbox
inline constexpr uint32_t kPoisonTextBytesMax = 1024;

// The states of the poison: none, a rank writes its text, or the text may be read.
enum class PoisonState : uint32_t { kNone = 0, kWriting = 1, kSet = 2 };

// The head of the control block.
struct ControlHead {
    std::atomic<uint64_t> magic;  // kControlMagic once layout_hash may be read
    std::atomic<uint64_t> layout_hash;
    std::atomic<uint32_t> poison_state;  // PoisonState
    uint32_t poison_text_bytes;          // valid once kSet
    char poison_text[kPoisonTextBytesMax];
};
inline constexpr uint64_t kControlMagic = 0x31414e4552414c44;  // "DLARENA1"

// One rank's word of a signal.
struct SignalWord {
    std::atomic<uint32_t> generation;
    std::atomic<uint32_t> sleepers;  // a hint: a post wakes sleepers only if it is not 0
};

// The fields of a control block. Their offsets depend on the numbers of local ranks and signals.
// Signal words are stored rank by rank. The words of different ranks are on different cache lines,
// since each rank writes only its own words.
class ControlBlock {
  public:
    // The numbers that determine the offsets.
    struct Shape {
        int local_world_size = 1;
        int signal_count = 0;
    };

    ControlBlock(std::byte* base, Shape shape) : base_(base), shape_(shape) {}

    // Returns the length of a control block.
    [[nodiscard]] static Bytes bytes(Shape shape) {
        return {mailbox_offset(shape) + kMailboxBytes * shape.local_world_size};
    }

    // Return the fields: the head; the process id of a local rank, which is 0 until the rank has
    // entered; the rank's word of a signal; the rank's mailbox. REQUIRES: the numbers of rank and
    // signal are below the counts in the shape.
    [[nodiscard]] ControlHead& head() const { return *reinterpret_cast<ControlHead*>(base_); }
    [[nodiscard]] std::atomic<int32_t>& pid(int local_rank) const {
        return reinterpret_cast<std::atomic<int32_t>*>(base_ + kHeadBytes)[local_rank];
    }
    [[nodiscard]] SignalWord& word(int signal, int local_rank) const {
        std::byte* const row = base_ + words_offset(shape_) + row_bytes(shape_) * local_rank;
        return reinterpret_cast<SignalWord*>(row)[signal];
    }
    [[nodiscard]] std::span<std::byte> mailbox(int local_rank) const {
        return {base_ + mailbox_offset(shape_) + kMailboxBytes * local_rank,
                static_cast<size_t>(kMailboxBytes)};
    }
    // Returns all mailboxes as one span.
    [[nodiscard]] std::span<std::byte> whole_mailbox() const {
        return {base_ + mailbox_offset(shape_),
                static_cast<size_t>(kMailboxBytes * shape_.local_world_size)};
    }
    // Returns the shape that was given.
    [[nodiscard]] const Shape& shape() const { return shape_; }

  private:
    static constexpr int64_t kHeadBytes = round_up(sizeof(ControlHead), 64);

    static int64_t words_offset(Shape shape) {
        return kHeadBytes + round_up(shape.local_world_size * int64_t{4}, 64);
    }
    static int64_t row_bytes(Shape shape) {
        return round_up(shape.signal_count * static_cast<int64_t>(sizeof(SignalWord)), 64);
    }
    static int64_t mailbox_offset(Shape shape) {
        return words_offset(shape) + row_bytes(shape) * shape.local_world_size;
    }

    std::byte* base_;
    Shape shape_;
};

}  // namespace dslaunch::runtime
