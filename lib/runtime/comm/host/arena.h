// The memory that the ranks of one host share: one mapping that holds a control block, slices that
// exist once per host and slices that each local rank has. All ranks compute the same layout before
// anything is mapped. Data path: step plan -> arena layout -> arena -> host group, collectives,
// executor. Threads: a layout is a value; an Arena is const after opening. The plan says to whom
// its bytes belong.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/clock.h"
#include "device/device.h"

namespace dslaunch::runtime {

struct SliceId {
    int index = -1;
};
// A word per local rank that counts generations. HostGroup posts and awaits it.
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
        int64_t offset = 0;  // offset from the start of the shared region, or of each rank's part
        bool per_rank = false;
    };
    struct Bucket {
        std::string name;
        SliceId slice;
        int64_t offset_numel = 0;  // within the slice
        int64_t numel = 0;         // fp32
        SignalId posted{};         // this rank's gradients are complete
        SignalId summed{};         // this rank's part is summed over the host (several hosts only)
        SignalId reduced{};        // this rank's reduction is done
        SignalId released{};       // this rank reads no more
    };

    // REQUIRES: local_world_size >= 1.
    explicit ArenaLayout(int local_world_size);

    // Adds one copy for the host (parameters), aligned to 64 bytes, or to a page if it fills one.
    SliceId add_shared(const std::string& name, Bytes bytes);
    // Adds one copy in the part of each local rank.
    SliceId add_per_rank(const std::string& name, Bytes bytes);
    SignalId add_signal(const std::string& name);
    // Adds a gradient bucket: a slice of NUMEL fp32 per local rank and its four signals.
    BucketId add_bucket(const std::string& name, int64_t numel);
    // Adds a bucket on [offset_numel, offset_numel + numel) of SLICE, with signals of its own, so
    // that several buckets use the same memory one after the other. The next writer waits until the
    // bucket before it is free (see Collectives::await_free). REQUIRES: a slice of add_per_rank or
    // add_bucket that holds them; offset_numel is a multiple of 16.
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
    [[nodiscard]] Bytes part_bytes() const;  // one local rank's part
    [[nodiscard]] Bytes total_bytes() const;
    // Returns a hash of names, sizes and places, so equal layouts have equal hashes.
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
        // DSL_ARENA_FD: a fresh memfd that allows sealing. The arena does not own it, and it may be
        // closed afterwards.
        int fd = -1;
        int local_rank = 0;  // rank 0 sizes and seals the memory, the others wait for that
        Duration time_limit{};
    };

    // Anonymous shared memory serves one rank alone, ranks as threads, and children forked later.
    // Throws Error{kSetup} naming the bytes if there is not enough memory.
    [[nodiscard]] static Arena anonymous(ArenaLayout layout);
    // Makes the arena of a rank whose slices are in DEVICE's memory, which it alone has. Its
    // signals are in the host's. Throws what the device throws. REQUIRES: one local rank.
    [[nodiscard]] static Arena on_device(ArenaLayout layout, device::Device& device);
    // Throws Error{kSetup} (not a memfd, no memory), Error{kHang} if local rank 0 does not size it
    // in time, and Error{kDiverged} if its layout is another one. Blocks at most the time limit.
    [[nodiscard]] static Arena from_descriptor(ArenaLayout layout, const Descriptor& descriptor);

    Arena(Arena&& other) noexcept;
    Arena(const Arena&) = delete;
    Arena& operator=(const Arena&) = delete;
    Arena& operator=(Arena&&) = delete;
    ~Arena();

    [[nodiscard]] const ArenaLayout& layout() const { return layout_; }

    // Faults in the pages that LOCAL_RANK will write first: its own part and its share of the
    // shared region. A device's memory is there already. Huge pages are asked for and not relied
    // on. Throws Error{kSetup} naming the bytes if memory runs out.
    void populate(int local_rank) const;

    [[nodiscard]] std::span<std::byte> control() const;
    // REQUIRES: a slice added by add_shared.
    [[nodiscard]] std::span<std::byte> shared(SliceId id) const;
    // REQUIRES: a slice added by add_per_rank or add_bucket.
    [[nodiscard]] std::span<std::byte> of_rank(SliceId id, int local_rank) const;
    // Returns [numel] fp32, aligned to 64 bytes.
    [[nodiscard]] std::span<float> bucket_of_rank(BucketId id, int local_rank) const;

  private:
    explicit Arena(ArenaLayout layout) : layout_(std::move(layout)) {}

    [[nodiscard]] Bytes mapped_bytes() const;
    // Returns the slices, after the control block or on a device.
    [[nodiscard]] std::byte* slices() const;

    ArenaLayout layout_;
    // [layout_.total_bytes()], or the control block alone. Unmapped by the destructor.
    std::byte* base_ = nullptr;
    bool on_device_ = false;
    device::Memory on_device_slices_;
};

}  // namespace dslaunch::runtime
