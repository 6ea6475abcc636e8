// A rank's optimizer states and offloaded parameters, chunk by chunk. A chunk is in memory for
// good, kept in memory while the plan says so, or on disk and moved through a swap buffer. Data
// path: step plan -> state store -> ZeRO state, parameter store. Threads: the read lane calls
// read() and read_parameters(), the write lane write(), the communication lane the rest. The plan's
// waits order them. Outside of a step any one thread may call them.
#pragma once

#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <ranges>
#include <span>
#include <vector>

#include "base/kinds/dtype.h"
#include "base/machine/zeroed_floats.h"
#include "device/device.h"
#include "kernels/flat_range.h"
#include "plan/step/step_plan.h"
#include "runtime/state/state_account.h"
#include "storage/disk/io_arena.h"
#include "zero/states/chunk_disk.h"
#include "zero/states/offload_file.h"
#include "zero/states/shard_map.h"

namespace dslaunch::zero {

// Pointers to the parts of a chunk, each to the part's first element. A pointer is null if the part
// is not in memory or does not exist.
struct ChunkView {
    std::byte* parameters = nullptr;  // in the dtype that segments read; only if offloaded
    float* master = nullptr;
    std::array<float*, kMomentsMax> moments{};
    kernels::PackedStates packed;  // moments in fewer bits, instead of MOMENTS
    float* sums = nullptr;         // reduced gradients, if they are kept
};

// A range of a bucket's elements that a chunk holds.
struct ChunkPart {
    Range range;               // within the bucket
    int64_t offset_numel = 0;  // offset in the chunk
    int piece = -1;            // index into the bucket's ShardMap::pieces; -1 if frozen
};

// Stores states; see the top of this file.
class StateStore {
  public:
    // Writes the first values of moment K, for ELEMENTS of a bucket, to memory of the device.
    // Without this function, moments start at 0.
    using FillMoments =
        std::function<void(int bucket, size_t k, const Range& elements, float* into)>;
    // Allocates on DEVICE the memory that is needed under every plan. FILE is null if
    // bytes_on_disk() is 0. PLAN must live until it is replaced, and everything else must outlive
    // the store. REQUIRES: the device is the host if chunks move through swap buffers.
    StateStore(const plan::StepPlan& plan, const plan::StepPlanOptions& options,
               const ShardMap& map, device::Device& device, OffloadFile* file,
               FillMoments first_moments);

    // Returns the room that the file needs. It includes chunks that are kept in memory, since they
    // may go to disk later.
    [[nodiscard]] static Bytes bytes_on_disk(const plan::StepPlan& plan,
                                             const plan::ChunkFormat& format);

    // chunk() returns the plan's data of a chunk, parts() the elements that the chunk holds, and
    // chunks_of() the indices of a bucket's chunks.
    [[nodiscard]] const plan::StateChunk& chunk(int c) const { return plan_->chunks.all[c]; }
    [[nodiscard]] const std::vector<ChunkPart>& parts(int c) const { return chunks_[c].parts; }
    [[nodiscard]] std::ranges::iota_view<int, int> chunks_of(int bucket) const;

    // Sets a chunk's parameters (if offloaded) and master copy (if there is one). FILL writes
    // elements of the bucket, in the given dtype, to memory of the device. Moments get their first
    // values. Called before the first step.
    using Fill = std::function<void(const Range& elements, std::byte* into, DType dtype)>;
    void put(int c, DType parameter_dtype, const Fill& fill);
    // Allocates the memory of the moments, and reads the chunks that a step expects in the swap
    // buffers. Called after put() for all chunks, once the memory of their sources is freed.
    void begin();

    // Replaces the plan by PLAN, outside of a step. PLAN may differ only in which chunks it keeps
    // in memory and in which data its updates use, and must outlive the store. If the same chunks
    // are kept, nothing moves. Otherwise, changed swap buffers are written, as the next step would
    // do. Chunks that are no longer kept are written, and their memory is freed. Chunks that are
    // now kept are read into memory of their own. The buffers get the chunks that the next step
    // expects there. Nothing else moves. Blocks until all is done. Called by the thread that made
    // FILE. Throws Error{kDisk}, and Error{kSetup} if memory runs out.
    void change_plan(const plan::StepPlan& plan);

    // Discards the sums of gradients. MEASURED is true if packing errors are measured in this step.
    void begin_step(bool measured);
    // Skips this step: its chunks do not change, and its sums are not used, so nothing is moved.
    void skip_step() { skipping_ = true; }
    // Carry out a Read or Write instruction: it moves a chunk, its sums, or both.
    void read(const plan::Instruction& read);
    void write(const plan::Instruction& write);
    // Returns the sums to which an Accumulate adds, [numel of the chunk] fp32. FRESH is true if
    // this step has not written the sums yet. REQUIRES: if not FRESH, the sums are in memory, or in
    // their buffer, as the plan says.
    [[nodiscard]] float* sums_of(const plan::Instruction& accumulate, bool fresh);
    // Returns the chunk that an Update changes, without states if the plan leaves them on disk.
    // REQUIRES: the chunk is in memory, or in its buffers, as the plan says.
    [[nodiscard]] ChunkView view(const plan::Instruction& update);
    // Reports that the chunk in BUFFER was updated and must be written.
    void set_changed(int buffer) { buffers_[buffer].changed = buffers_[buffer].updated = true; }

    // Returns the places of a chunk's parts in memory, which are valid until the plan changes.
    // Returns nullopt if a part is on disk or packed. Called outside of a step.
    [[nodiscard]] std::optional<ChunkView> view_at_rest(int c);
    // Calls USE with a view of chunk C. Parts that are on disk or packed are first brought into
    // memory that is valid until USE returns. The view has no sums, and no 16-bit parameters, since
    // only their master copies are certain to be current. Called outside of a step.
    void visit(int c, const std::function<void(const ChunkView&)>& use);

    // Sets a function that may change the view of a chunk before visit() passes it on. visit()
    // calls it for each chunk that is not in memory between steps.
    void set_overlay(std::function<void(int c, const ChunkView&)> use) {
        overlay_ = std::move(use);
    }

    // Copies this rank's elements of BUCKET to memory. The parameters of BUCKET must be offloaded:
    // the elements come from disk, or from swap buffers that contain them. Each element goes to its
    // position in the bucket, counted from BASE.
    void read_parameters(int bucket, std::byte* base);
    // Copies the master copy of a bucket's pieces, from memory or disk. Each piece goes to position
    // piece.range.begin after BASE, which is in the device's memory. REQUIRES: there are master
    // copies. Called outside of a step.
    void copy_master(int bucket, float* base);

    // Called outside of a step, or by the thread of write().
    [[nodiscard]] std::vector<std::string> describe_packing() const {
        return disk_.describe_packing();
    }

    // Adds the bytes in memory to ACCOUNT. ACCOUNT's swap_buffers include the memory for packing.
    // Counts the sums of gradients only if SUMS is true.
    void add_memory(runtime::MemoryAccount& account, bool sums) const;

  private:
    // The store's data about a chunk. The plan's StateChunk of the same index says where the chunk
    // is kept and when a step updates it.
    struct Chunk {
        plan::ChunkLayout layout;  // layout of its movable parts, in a swap buffer or OWN
        std::vector<ChunkPart> parts;
        StoredPart parameters;
        StoredPart states;
        storage::ExtentId sums;
        // The chunk's own memory while a plan keeps the chunk in memory. It begins with the chunk's
        // parts, in the layout of a swap buffer. Then come the sums of the chunk's gradients.
        ZeroedFloats own;
        // The chunk's offset in the arrays of resident_; -1 if the chunk has no part in them.
        int64_t resident_states = -1;                                    // elements
        int64_t resident_parameters = -1;                                // bytes
        std::array<int64_t, kMomentsMax> packed_moments = {-1, -1, -1};  // bytes; -1 if not packed
    };
    // Memory for one chunk at a time while it is updated.
    struct SwapBuffer {
        std::span<std::byte> memory;
        int chunk = -1;        // the chunk it holds
        bool changed = false;  // true if changed since it was written
        bool updated = false;  // true if updated since it was read
    };
    // Memory for the gradient sums of one chunk at a time.
    struct SumBuffer {
        std::span<std::byte> memory;
        int chunk = -1;  // the chunk whose sums it holds
    };
    // The parts of chunks that are in memory under every plan. In each array, the parts of all
    // chunks follow each other.
    struct Resident {
        int64_t states_numel = 0;
        device::Memory master;
        std::array<device::Memory, kMomentsMax> moments;
        device::Memory sums;
        storage::IoArena parameters;
    };
    // The place of the movable parts of a chunk; its other parts are resident.
    struct Place {
        enum class Kind {
            kResident,  // nothing moves under any plan
            kOwn,       // in memory of its own, since the plan keeps the chunk
            kBuffer,    // in its swap buffer
            kDisk,
        };
        Kind kind = Kind::kResident;
        std::byte* memory = nullptr;  // in the chunk's layout; null if not in memory
        const SwapBuffer* buffer = nullptr;
    };
    [[nodiscard]] Place place_of(int c);
    // Returns the view of a chunk whose movable parts are in MEMORY, which may be null.
    [[nodiscard]] ChunkView view_in(int c, std::byte* memory) const;
    void take_resident_memory();
    [[nodiscard]] std::vector<ChunkPart> find_parts(int c, const ShardMap& map) const;
    void add_extents(int c);
    void make_buffers(int64_t buffers_max);
    void fill_buffers();
    std::span<std::byte> take_own_memory(int c);
    void fill_moments(int c, size_t k, float* into) const;
    void take_packed_moments(size_t k);
    void copy_out(int c, const std::byte* from, int64_t element_bytes, std::byte* base) const;
    [[nodiscard]] OffloadFile::Part sum_transfer(int c, const SumBuffer& buffer) const;
    [[nodiscard]] std::vector<ChunkDisk::Transfer> transfers(int c, std::span<std::byte> memory,
                                                             bool whole);
    [[nodiscard]] float* sums_in(int c, int buffer) const;
    void take_bounce_memory();
    // Returns the parameters of a chunk in memory, or null if they must be read.
    [[nodiscard]] const std::byte* parameters_in_memory(int c);

    const plan::StepPlan* plan_;
    plan::ChunkFormat format_;
    device::Device& device_;
    OffloadFile* file_;
    ChunkDisk disk_;
    std::vector<Chunk> chunks_;
    FillMoments first_moments_;
    std::function<void(int c, const ChunkView&)> overlay_;
    Resident resident_;
    std::vector<SwapBuffer> buffers_;  // as many as a plan that keeps no chunk uses
    std::vector<SumBuffer> sum_buffers_;
    storage::IoArena swap_memory_;  // both kinds of buffers, and packing's memory
    // Room for the parameters of two chunks, between the disk and the buffer in which they are
    // gathered.
    storage::IoArena bounce_;
    std::atomic<bool> skipping_{false};
};

}  // namespace dslaunch::zero
