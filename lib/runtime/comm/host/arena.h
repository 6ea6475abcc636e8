// Memory that the ranks of one host share: one mapping that holds a control block, slices that
// exist once per host and slices that each local rank has. The layout is computed equally by all
// ranks before anything is mapped. Where it stands: step plan -> arena layout -> arena -> host
// group, collectives, executor. Threads: a layout is a value; an Arena is const after opening, its
// bytes belong to whom the plan says.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/clock.h"

namespace dslaunch::runtime {

struct SliceId {
    int index = -1;
};
// A word per local rank that counts generations: what HostGroup posts and awaits.
struct SignalId {
    int index = -1;
};
struct BucketId {
    int index = -1;
};

// A bump allocator over names: the same calls give the same layout, whose hash the ranks compare
// when they open it.
class ArenaLayout {
  public:
    struct Slice {
        std::string name;
        Bytes bytes;
        int64_t offset = 0;  // from the start of the shared region, or of each rank's part
        bool per_rank = false;
    };
    struct Bucket {
        std::string name;
        SliceId slice;
        int64_t offset_numel = 0;  // within the slice
        int64_t numel = 0;         // fp32
        SignalId posted{};         // this rank's gradients are complete
        SignalId summed{};         // its part is summed over the host (several hosts only)
        SignalId reduced{};        // what it reduces is done
        SignalId released{};       // it reads no more
    };

    // REQUIRES: local_world_size >= 1.
    explicit ArenaLayout(int local_world_size);

    // One copy for the host (parameters). Aligned to 64 bytes, from a page on to a page.
    SliceId add_shared(const std::string& name, Bytes bytes);
    // One copy in the part of each local rank.
    SliceId add_per_rank(const std::string& name, Bytes bytes);
    SignalId add_signal(const std::string& name);
    // A gradient bucket: a slice of NUMEL fp32 per local rank and its four signals.
    BucketId add_bucket(const std::string& name, int64_t numel);
    // A bucket on [offset_numel, offset_numel + numel) of SLICE, with signals of its own, so that
    // several buckets use the same memory one after the other. Who writes next waits until the
    // bucket before it is free (Collectives::await_free says how). REQUIRES: a slice of
    // add_per_rank or add_bucket that holds them; offset_numel is a multiple of 16.
    BucketId add_bucket(const std::string& name, int64_t numel, SliceId slice,
                        int64_t offset_numel);

    [[nodiscard]] int local_world_size() const { return local_world_size_; }
    [[nodiscard]] const Slice& slice(SliceId id) const;
    [[nodiscard]] const Bucket& bucket(BucketId id) const;
    [[nodiscard]] const std::string& signal_name(SignalId id) const;
    [[nodiscard]] int signal_count() const { return static_cast<int>(signals_.size()); }
    [[nodiscard]] int bucket_count() const { return static_cast<int>(buckets_.size()); }

    [[nodiscard]] Bytes control_bytes() const;
    [[nodiscard]] Bytes shared_bytes() const;
    [[nodiscard]] Bytes part_bytes() const;  // of one local rank
    [[nodiscard]] Bytes total_bytes() const;
    // Of names, sizes and places: equal layouts have equal hashes.
    [[nodiscard]] uint64_t hash() const;

  private:
    int local_world_size_;
    int64_t shared_end_ = 0;
    int64_t part_end_ = 0;
    std::vector<Slice> slices_;
    std::vector<std::string> signals_;
    std::vector<Bucket> buckets_;
};

class Arena {
  public:
    struct Descriptor {
        int fd = -1;  // DSL_ARENA_FD: a fresh memfd that allows sealing; not owned, may be closed
                      // afterwards
        int local_rank = 0;  // 0 gives it its size and seals it, the others wait for that
        Duration time_limit{};
    };

    // Anonymous shared memory: for one rank alone, for ranks as threads, and for children forked
    // later. Throws Error{kSetup} naming the bytes when there is not enough memory.
    [[nodiscard]] static Arena anonymous(ArenaLayout layout);
    // Throws Error{kSetup} (not a memfd, no memory), Error{kHang} when local rank 0 does not size
    // it in time, and Error{kDiverged} when its layout is another one. May block up to the time
    // limit.
    [[nodiscard]] static Arena from_descriptor(ArenaLayout layout, const Descriptor& descriptor);

    Arena(Arena&& other) noexcept;
    Arena(const Arena&) = delete;
    Arena& operator=(const Arena&) = delete;
    Arena& operator=(Arena&&) = delete;
    ~Arena();

    [[nodiscard]] const ArenaLayout& layout() const { return layout_; }

    // Faults in the pages that LOCAL_RANK will write first: its own part and its share of the
    // shared region. Huge pages are asked for and not counted on. Throws Error{kSetup} naming the
    // bytes when memory runs out.
    void populate(int local_rank) const;

    [[nodiscard]] std::span<std::byte> control() const;
    // REQUIRES: a slice added by add_shared.
    [[nodiscard]] std::span<std::byte> shared(SliceId id) const;
    // REQUIRES: a slice added by add_per_rank or add_bucket.
    [[nodiscard]] std::span<std::byte> of_rank(SliceId id, int local_rank) const;
    // [numel] fp32, aligned to 64 bytes.
    [[nodiscard]] std::span<float> bucket_of_rank(BucketId id, int local_rank) const;

  private:
    explicit Arena(ArenaLayout layout) : layout_(std::move(layout)) {}

    ArenaLayout layout_;
    std::byte* base_ = nullptr;  // [layout_.total_bytes()], unmapped by the destructor
};

}  // namespace dslaunch::runtime
