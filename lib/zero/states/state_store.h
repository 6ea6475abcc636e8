// A rank's optimizer states and offloaded parameters, chunk by chunk: in memory for good, kept
// there while the plan says so, or on disk and passing through a swap buffer. Data path: step plan
// -> state store -> ZeRO state, parameter store. Threads: the read lane calls read() and
// read_parameters(), the write lane write(), the communication lane the rest. The plan's waits
// order them. Outside of a step any one thread may call them.
#pragma once

#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <optional>
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

// The parts of a chunk, each from its first element on. Null means not in memory or absent.
struct ChunkView {
    std::byte* parameters = nullptr;  // in the dtype that segments read; only if offloaded
    float* master = nullptr;
    std::array<float*, 2> moments{};
    kernels::PackedStates packed;  // moments in fewer bits, in the place of these
    float* sums = nullptr;         // reduced gradients, if they are kept
};

// A range of a bucket's elements that a chunk holds.
struct ChunkPart {
    Range range;               // within the bucket
    int64_t offset_numel = 0;  // offset in the chunk
    int piece = -1;            // index into ShardMap::pieces of the bucket; -1: it is frozen
};

class StateStore {
  public:
    // Gives the moments their values before the first step, 0 by default: it writes elements of a
    // bucket's moment K to memory of the device.
    using FillMoments =
        std::function<void(int bucket, size_t k, const Range& elements, float* into)>;
    // The memory that stays under every plan is DEVICE's. FILE is null if bytes_on_disk() is 0. All
    // references must outlive the store, PLAN only until another takes its place. REQUIRES: the
    // device is the host if chunks pass through memory.
    StateStore(const plan::StepPlan& plan, const plan::StepPlanOptions& options,
               const ShardMap& map, device::Device& device, OffloadFile* file,
               FillMoments first_moments);

    // Returns the room that the file needs. Kept chunks count too, since they may go there later.
    [[nodiscard]] static Bytes bytes_on_disk(const plan::StepPlan& plan,
                                             const plan::ChunkFormat& format);

    [[nodiscard]] const plan::StateChunk& chunk(int c) const { return plan_->chunks.all[c]; }
    [[nodiscard]] const std::vector<ChunkPart>& parts(int c) const { return chunks_[c].parts; }
    [[nodiscard]] std::span<const int> chunks_of(int bucket) const;

    // Sets a chunk's parameters (if offloaded) and master copy (if there is one). FILL writes
    // elements of the bucket, in the dtype asked for, to memory of the device. Moments get their
    // first values. Called before the first step.
    using Fill = std::function<void(const Range& elements, std::byte* into, DType dtype)>;
    void put(int c, DType parameter_dtype, const Fill& fill);
    // Takes the memory of the moments and brings the chunks that a step expects into the swap
    // buffers. It is called once all chunks are put and their sources are given back.
    void begin();

    // Replaces the plan by PLAN, outside of a step. PLAN may differ only in which chunks are kept
    // and in what its updates take, and must outlive the store. If the same chunks are kept,
    // nothing moves. Else changed swap buffers are written, as the next step would do. Chunks that
    // are no longer kept are written and their memory is given back. Chunks that now are kept are
    // read into memory of their own. The buffers get the chunks that the next step expects there.
    // Nothing else moves. Blocks until all is done. Called by the thread that made FILE. Throws
    // Error{kDisk}, and Error{kSetup} if memory runs out.
    void change_plan(const plan::StepPlan& plan);

    // Forgets the sums of gradients. MEASURED means that packing errors are measured in this step.
    void begin_step(bool measured);
    // Skips this step: its chunks no longer change and its sums are not used, so none is moved.
    void skip_step() { skipping_ = true; }
    // Carry out a Read or Write of a chunk: the chunk, its sums, or both.
    void read(const plan::Instruction& read);
    void write(const plan::Instruction& write);
    // Returns the sums that an Accumulate adds to, [numel of the chunk] fp32. FRESH says whether
    // this step has put nothing there yet. REQUIRES: if not FRESH, the sums are in memory, or in
    // their buffer as the plan says.
    [[nodiscard]] float* sums_of(const plan::Instruction& accumulate, bool fresh);
    // Returns the chunk that an Update works on, without states if the plan leaves them on disk.
    // REQUIRES: the chunk is in memory, or in its buffers as the plan says.
    [[nodiscard]] ChunkView view(const plan::Instruction& update);
    // Says that the chunk in BUFFER was updated and must be written.
    void set_changed(int buffer) { buffers_[buffer].changed = buffers_[buffer].updated = true; }

    // Returns the places of a chunk's parts in memory, valid while the plan stays, or nullopt if
    // some are on disk or packed. Called outside of a step.
    [[nodiscard]] std::optional<ChunkView> view_at_rest(int c);
    // Gives USE the parts of any chunk, in memory until it returns. Sums are left out, and 16-bit
    // parameters too, since only their master copies are sure to be current. Called outside of a
    // step.
    void visit(int c, const std::function<void(const ChunkView&)>& use);

    // USE is given every view of a chunk that is not at rest in memory, before visit()'s caller.
    void set_overlay(std::function<void(int c, const ChunkView&)> use) {
        overlay_ = std::move(use);
    }

    // Copies this rank's elements of a bucket whose parameters are offloaded, each to its place
    // from BASE on, from disk or from the swap buffers that hold them.
    void read_parameters(int bucket, std::byte* base);
    // Copies the master copy of a bucket's pieces, each to piece.range.begin from BASE on, which is
    // the device's, from disk if it is there. REQUIRES: there are master copies. Called outside of
    // a step.
    void copy_master(int bucket, float* base);

    // Called outside of a step, or by write()'s thread.
    [[nodiscard]] std::vector<std::string> describe_packing() const {
        return disk_.describe_packing();
    }

    // Adds the bytes in memory, and the swap buffers with packing's memory apart. The sums of
    // gradients count if SUMS.
    void add_memory(runtime::MemoryAccount& account, bool sums) const;

  private:
    // Everything that the store knows of a chunk. The plan's chunk of the same index has its place
    // in a step.
    struct Chunk {
        plan::ChunkLayout layout;  // layout of its passing parts, in a swap buffer or OWN
        std::vector<ChunkPart> parts;
        StoredPart parameters;
        StoredPart states;
        storage::ExtentId sums;
        // The chunk's memory while it is kept: laid out as in a swap buffer, then the sums of its
        // gradients.
        ZeroedFloats own;
        // The chunk's begin in the arrays of resident_; -1: it has no part there.
        int64_t resident_states = -1;                      // elements
        int64_t resident_parameters = -1;                  // bytes
        std::array<int64_t, 2> packed_moments = {-1, -1};  // bytes; -1: not packed
    };
    // Memory in which one chunk at a time is updated.
    struct SwapBuffer {
        std::span<std::byte> memory;
        int chunk = -1;        // the chunk it holds
        bool changed = false;  // true if changed since it was written
        bool updated = false;  // true if updated since it was read
    };
    // Memory in which the sums of one chunk at a time are added up.
    struct SumBuffer {
        std::span<std::byte> memory;
        int chunk = -1;  // the chunk whose sums it holds
    };
    // The memory that stays under every plan, with all chunks one after the other.
    struct Resident {
        int64_t states_numel = 0;
        device::Memory master;
        std::array<device::Memory, 2> moments;
        device::Memory sums;
        storage::IoArena parameters;
    };
    // The place of a chunk's parts that may pass; the rest of it is resident.
    struct Place {
        enum class Kind {
            kResident,  // nothing passes under any plan
            kOwn,       // in memory of its own, since the plan keeps the chunk
            kBuffer,    // in its swap buffer
            kDisk,
        };
        Kind kind = Kind::kResident;
        std::byte* memory = nullptr;  // laid out as the chunk's layout says; null: not in memory
        const SwapBuffer* buffer = nullptr;
    };
    [[nodiscard]] Place place_of(int c);
    // Returns the view of a chunk whose passing parts lie in MEMORY, which may be null.
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
    // Returns the end of a chunk's parameters, where its states begin.
    [[nodiscard]] static int64_t states_begin(const plan::ChunkLayout& layout);
    [[nodiscard]] std::vector<ChunkDisk::Transfer> transfers(int c, std::span<std::byte> memory,
                                                             bool whole);
    [[nodiscard]] device::Memory take_floats(int64_t numel) const;
    [[nodiscard]] float* sums_in(int c, int buffer) const;
    void take_bounce_memory();
    // Returns a chunk's parameters in memory, or null if they must be read.
    [[nodiscard]] const std::byte* parameters_in_memory(int c);

    const plan::StepPlan* plan_;
    plan::ChunkFormat format_;
    device::Device& device_;
    OffloadFile* file_;
    ChunkDisk disk_;
    std::vector<Chunk> chunks_;
    std::vector<int> indices_;  // 0, 1, …; chunks_of() points into it
    FillMoments first_moments_;
    std::function<void(int c, const ChunkView&)> overlay_;
    Resident resident_;
    std::vector<SwapBuffer> buffers_;  // as many as a plan that keeps no chunk uses
    std::vector<SumBuffer> sum_buffers_;
    storage::IoArena swap_memory_;  // both kinds of buffers, and packing's memory
    // The parameters of two chunks on their way to the place where they are gathered.
    storage::IoArena bounce_;
    std::atomic<bool> skipping_{false};
};

}  // namespace dslaunch::zero
