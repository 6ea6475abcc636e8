// The memory that the ranks of one host share: one mapping that contains a control block, slices
// that exist once per host, and slices that exist once per local rank. All ranks compute the same
// layout before anything is mapped. Data path: step plan -> arena layout -> arena -> host group,
// collectives, executor. Threads: a layout is a value; an Arena is const after opening. The plan
// says which rank may use which bytes.
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

// The id of a slice in a layout; -1: no slice.
struct SliceId {
    int index = -1;
};
// The id of a signal. A signal has one word per local rank, which counts generations. HostGroup
// posts signals and waits for them.
struct SignalId {
    int index = -1;
};
// The id of a gradient bucket in a layout; -1: no bucket.
struct BucketId {
    int index = -1;
};

// A bump allocator of named slices. The same calls produce the same layout; ranks compare its hash
// when they open the arena.
class ArenaLayout {
  public:
    // A named range of bytes, in the shared region or in each rank's part.
    struct Slice {
        std::string name;
        Bytes bytes;
        int64_t offset = 0;  // offset from the start of the shared region, or of each rank's part
        bool per_rank = false;
    };
    // A gradient bucket: its elements in each rank's part, and its signals.
    struct Bucket {
        std::string name;
        SliceId slice;
        int64_t offset_numel = 0;  // within the slice
        int64_t numel = 0;         // fp32
        SignalId posted{};         // this rank's gradients are complete
        SignalId summed{};         // this rank's part is summed over the host (several hosts only)
        SignalId reduced{};        // this rank's reduction is done
        SignalId released{};       // this rank has finished reading
    };

    // REQUIRES: local_world_size >= 1.
    explicit ArenaLayout(int local_world_size);

    // Adds a slice that exists once per host (parameters), aligned to 64 bytes, or to a page if it
    // is at least one page long.
    SliceId add_shared(const std::string& name, Bytes bytes);
    // Adds a slice that each local rank has in its own part.
    SliceId add_per_rank(const std::string& name, Bytes bytes);
    // Adds a signal. Messages about ranks that have not posted the signal contain NAME.
    SignalId add_signal(const std::string& name);
    // Adds a gradient bucket: a slice of NUMEL fp32 per local rank, and its four signals.
    BucketId add_bucket(const std::string& name, int64_t numel);
    // Adds a bucket in [offset_numel, offset_numel + numel) of SLICE, with signals of its own, so
    // that several buckets use the same memory one after the other. The next writer must wait until
    // the previous bucket is free (see Collectives::await_free). REQUIRES: SLICE was added by
    // add_per_rank or add_bucket and contains these elements; offset_numel is a multiple of 16.
    BucketId add_bucket(const std::string& name, int64_t numel, SliceId slice,
                        int64_t offset_numel);

    // Return facts about the layout: numbers of ranks, signals and buckets, and the slice, bucket
    // or signal name of an id. REQUIRES: an id comes from this layout.
    [[nodiscard]] int local_world_size() const { return local_world_size_; }
    [[nodiscard]] const Slice& slice(SliceId id) const;
    [[nodiscard]] const Bucket& bucket(BucketId id) const;
    [[nodiscard]] const std::string& signal_name(SignalId id) const;
    [[nodiscard]] int signal_count() const { return static_cast<int>(signals_.size()); }
    [[nodiscard]] int bucket_count() const { return static_cast<int>(buckets_.size()); }

    // Return the bytes of the control block, of the region that all ranks share, and of the whole
    // arena.
    [[nodiscard]] Bytes control_bytes() const;
    [[nodiscard]] Bytes shared_bytes() const;
    [[nodiscard]] Bytes part_bytes() const;  // one local rank's part
    [[nodiscard]] Bytes total_bytes() const;
    // Returns a hash of names, sizes and offsets; equal layouts have equal hashes.
    [[nodiscard]] uint64_t hash() const;

  private:
    int local_world_size_;
    int64_t shared_end_ = 0;
    int64_t part_end_ = 0;
    std::vector<Slice> slices_;
    std::vector<std::string> signals_;
    std::vector<Bucket> buckets_;
};

// A host's shared memory, mapped by one rank.
class Arena {
  public:
    // The memory that a launcher or agent has made for the ranks of a host.
    struct Descriptor {
        // The file descriptor from DSL_ARENA_FD: a new memfd that can be sealed. The arena does not
        // own it, and it may be closed afterwards.
        int fd = -1;
        int local_rank = 0;  // rank 0 sizes and seals the memory, the others wait for that
        Duration time_limit{};
    };

    // Makes an arena in anonymous shared memory. It serves a single rank, ranks that are threads,
    // or child processes that are forked later. Throws Error{kSetup}, naming the size, if there is
    // not enough memory.
    [[nodiscard]] static Arena anonymous(ArenaLayout layout);
    // Makes the arena of a rank whose slices are in the memory of DEVICE, which no other rank uses.
    // Its signals are in the host's memory. Throws the errors of the device. REQUIRES: there is one
    // local rank.
    [[nodiscard]] static Arena on_device(ArenaLayout layout, device::Device& device);
    // Maps the memory of DESCRIPTOR. Throws Error{kSetup} if its file is not a memfd or memory runs
    // out, Error{kHang} if local rank 0 does not size it in time, and Error{kDiverged} if rank 0
    // has a different layout. Blocks for at most the time limit.
    [[nodiscard]] static Arena from_descriptor(ArenaLayout layout, const Descriptor& descriptor);

    Arena(Arena&& other) noexcept;
    Arena(const Arena&) = delete;
    Arena& operator=(const Arena&) = delete;
    Arena& operator=(Arena&&) = delete;
    ~Arena();

    // Returns the layout of the memory.
    [[nodiscard]] const ArenaLayout& layout() const { return layout_; }

    // Faults in the pages that LOCAL_RANK will write first: its own part, and its share of the
    // shared region. Leaves out slices on a device. Huge pages are requested but not required.
    // Throws Error{kSetup}, naming the size, if memory runs out.
    void populate(int local_rank) const;

    // Returns the control block's bytes.
    [[nodiscard]] std::span<std::byte> control() const;
    // REQUIRES: ID was added by add_shared.
    [[nodiscard]] std::span<std::byte> shared(SliceId id) const;
    // REQUIRES: ID was added by add_per_rank or add_bucket.
    [[nodiscard]] std::span<std::byte> of_rank(SliceId id, int local_rank) const;
    // Returns [numel] fp32, aligned to 64 bytes.
    [[nodiscard]] std::span<float> bucket_of_rank(BucketId id, int local_rank) const;

  private:
    explicit Arena(ArenaLayout layout) : layout_(std::move(layout)) {}

    [[nodiscard]] Bytes mapped_bytes() const;
    // Returns the start of the slices: after the control block, or in the device's memory.
    [[nodiscard]] std::byte* slices() const;

    ArenaLayout layout_;
    // The mapping: [layout_.total_bytes()], or only the control block if the slices are on a
    // device. The destructor unmaps it.
    std::byte* base_ = nullptr;
    bool on_device_ = false;
    device::Memory on_device_slices_;
};

}  // namespace dslaunch::runtime
