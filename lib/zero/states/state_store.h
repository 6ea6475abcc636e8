// A rank's optimizer states and offloaded parameters, chunk by chunk: in memory for good, kept
// there while the plan says so, or on disk and in a swap buffer while they pass. Where it stands:
// step plan -> state store -> ZeRO state, parameter store. Threads: read() and read_parameters() by
// the read lane, write() by the write lane, the rest by the communication lane, ordered by the
// plan's waits; outside of a step by any one thread.
#pragma once

#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/kinds/dtype.h"
#include "base/zeroed_floats.h"
#include "plan/step/step_plan.h"
#include "storage/disk/io_arena.h"
#include "zero/states/chunk_disk.h"
#include "zero/states/offload_file.h"
#include "zero/states/shard_map.h"

namespace dslaunch::zero {

// The parts of a chunk, each from its first element on; null: not in memory, or there is none.
struct ChunkView {
    std::byte* parameters = nullptr;  // of the dtype that segments read; only where offloaded
    float* master = nullptr;
    std::array<float*, 2> moments{};
    float* sums = nullptr;  // reduced gradients, where they are kept
};

// A range of a bucket's elements that a chunk holds.
struct ChunkPart {
    Range range;               // within the bucket
    int64_t offset_numel = 0;  // in the chunk
    int piece = -1;            // index into ShardMap::pieces of the bucket; -1: it is frozen
};

class StateStore {
  public:
    // FILE: null where bytes_on_disk() is 0. All must outlive the store, PLAN until another takes
    // its place.
    StateStore(const plan::StepPlan& plan, const plan::StepPlanOptions& options,
               const ShardMap& map, OffloadFile* file);

    // What the file must have room for: chunks that are kept, too, which may go there later.
    [[nodiscard]] static Bytes bytes_on_disk(const plan::StepPlan& plan,
                                             const plan::ChunkFormat& format);

    [[nodiscard]] const plan::StateChunk& chunk(int c) const { return plan_->chunks.all[c]; }
    [[nodiscard]] const std::vector<ChunkPart>& parts(int c) const { return chunks_[c].parts; }
    [[nodiscard]] std::span<const int> chunks_of(int bucket) const;

    // What the moments hold before the first step: FILL writes elements of a bucket's moment K.
    // Before put() and begin(); by default 0.
    using FillMoments =
        std::function<void(int bucket, size_t k, const Range& elements, float* into)>;
    void set_moments(FillMoments fill) { initial_moments_ = std::move(fill); }
    // Sets a chunk's parameters (where offloaded) and master copy (where there is one): FILL writes
    // elements of the bucket, in the dtype asked for. Moments get their first values. Before the
    // first step.
    using Fill = std::function<void(const Range& elements, std::byte* into, DType dtype)>;
    void put(int c, DType parameter_dtype, const Fill& fill);
    // All chunks are put, and what they came from is given back: takes the memory of the moments,
    // and brings the chunks that a step expects in the swap buffers.
    void begin();

    // Outside of a step: PLAN, whose chunks differ in which are kept alone, takes the place of the
    // plan, and must outlive the store. What changed in the swap buffers is written, as the next
    // step would; chunks that are not kept any more are written and their memory is given back;
    // chunks that now are, are read into memory of their own; the buffers get what the next step
    // expects there. Nothing else moves. Blocks until all is done. By the thread that made FILE.
    // Throws Error{kDisk}, Error{kSetup} where memory runs out.
    void change_plan(const plan::StepPlan& plan);

    // Sums of gradients start anew. MEASURED: what packing changes is measured in this step.
    void begin_step(bool measured);
    // No chunk changes any more in this step, and no sums are used: it is not worth moving them.
    void skip_step() { skipping_ = true; }
    // What a Read or Write of a chunk says: the chunk, its sums, or both.
    void read(const plan::Instruction& read);
    void write(const plan::Instruction& write);
    // [numel of the chunk] fp32: where an Accumulate adds up. FRESH: nothing of this step lies
    // there yet. REQUIRES: else the sums are in memory, or in their buffer as the plan says.
    [[nodiscard]] float* sums_of(const plan::Instruction& accumulate, bool fresh);
    // What an Update works on. REQUIRES: the chunk is in memory, or in its buffers as the plan
    // says.
    [[nodiscard]] ChunkView view(const plan::Instruction& update);
    // The chunk in BUFFER was updated: it must be written.
    void set_changed(int buffer) { buffers_[buffer].changed = buffers_[buffer].updated = true; }

    // Outside of a step: where the parts of a chunk lie in memory as long as the plan stays;
    // nullopt: some are on disk.
    [[nodiscard]] std::optional<ChunkView> view_at_rest(int c);
    // Outside of a step: the parts of any chunk, in memory until USE returns, but for sums and for
    // 16-bit parameters, which only their master copies tell for certain.
    void visit(int c, const std::function<void(const ChunkView&)>& use);

    // This rank's elements of a bucket whose parameters are offloaded, each at its place behind
    // BASE, from disk or from the swap buffers that hold them.
    void read_parameters(int bucket, std::byte* base);
    // The master copy of a bucket's pieces, each at piece.range.begin behind BASE; from disk where
    // it is there. REQUIRES: there are master copies. Outside of a step.
    void copy_master(int bucket, float* base);

    // Outside of a step; by write().
    [[nodiscard]] std::vector<std::string> describe_packing() const {
        return disk_.describe_packing();
    }

    // In memory, swap buffers not counted.
    [[nodiscard]] Bytes parameter_bytes() const;
    [[nodiscard]] Bytes master_bytes() const;
    [[nodiscard]] Bytes moment_bytes() const;
    [[nodiscard]] Bytes sum_bytes() const;
    // Of the swap buffers, and of what is packed on its way.
    [[nodiscard]] Bytes buffer_bytes() const { return Bytes{std::ssize(swap_memory_.bytes())}; }

  private:
    // All that the store knows of a chunk; the plan's chunk of the same index says where it is now.
    struct Chunk {
        plan::ChunkLayout layout;  // in a swap buffer, or where it is kept
        std::vector<ChunkPart> parts;
        StoredPart parameters;
        StoredPart states;
        storage::ExtentId sums;
        // While it is kept: laid out as in a swap buffer, then the sums of its gradients.
        ZeroedFloats home;
        // Where it begins in the arrays of resident_; -1: it is on disk when it is not kept.
        int64_t resident_states = -1;      // elements
        int64_t resident_parameters = -1;  // bytes
    };
    // Memory in which one chunk at a time is updated.
    struct SwapBuffer {
        std::span<std::byte> memory;
        int chunk = -1;        // that it holds
        bool changed = false;  // since it was written
        bool updated = false;  // since it was read
    };
    // Memory in which the sums of one chunk at a time are added up.
    struct SumBuffer {
        std::span<std::byte> memory;
        int chunk = -1;  // whose sums it holds
    };
    // What stays in memory under every plan, of all chunks one after the other.
    struct Resident {
        int64_t states_numel = 0;
        ZeroedFloats master;
        std::array<ZeroedFloats, 2> moments;
        ZeroedFloats sums;
        storage::IoArena parameters;
    };
    void take_resident_memory();
    [[nodiscard]] std::vector<ChunkPart> find_parts(int c, const ShardMap& map) const;
    void add_extents(int c);
    void make_buffers(int64_t buffers_max);
    void fill_buffers();
    void make_home(int c);
    [[nodiscard]] std::span<std::byte> home(int c);
    [[nodiscard]] int64_t numel_where(bool (plan::StateChunk::*holds)() const) const;
    void fill_parts(int c, std::byte* memory, DType dtype, const Fill& fill) const;
    void fill_moments(int c, size_t k, float* into) const;
    void copy_out(int c, const std::byte* from, int64_t element_bytes, std::byte* base) const;
    [[nodiscard]] OffloadFile::Part sum_transfer(int c, const SumBuffer& buffer) const;
    // Where the parameters of a chunk end and its states begin.
    [[nodiscard]] static int64_t states_begin(const plan::ChunkLayout& layout);
    [[nodiscard]] std::vector<ChunkDisk::Transfer> transfers(int c, std::span<std::byte> memory,
                                                             bool whole);
    [[nodiscard]] ChunkView view_in(int c, std::byte* memory) const;
    void add_resident(int c, ChunkView& view);
    [[nodiscard]] float* resident(int c, ZeroedFloats& all) const;
    [[nodiscard]] std::byte* parameters_for_good(int c);
    // Where the parameters of a chunk lie, for good or in a swap buffer; null: they must be read.
    [[nodiscard]] const std::byte* parameters_in_memory(int c);
    [[nodiscard]] float* sums_in(int c, int buffer) const;
    // The swap buffer that holds a chunk; null: none does.
    [[nodiscard]] SwapBuffer* buffer_holding(int c);

    const plan::StepPlan* plan_;
    plan::ChunkFormat format_;
    OffloadFile* file_;
    ChunkDisk disk_;
    std::vector<Chunk> chunks_;
    std::vector<int> indices_;  // 0, 1, …: what chunks_of() points into
    FillMoments initial_moments_;
    Resident resident_;
    std::vector<SwapBuffer> buffers_;  // as many as the plan that keeps no chunk uses
    std::vector<SumBuffer> sum_buffers_;
    storage::IoArena swap_memory_;  // of both kinds of buffers, and of what is packed on its way
    storage::IoArena bounce_;       // parameters of two chunks on their way to where they are
                                    // gathered
    int64_t bounce_bytes_ = 0;      // of the largest chunk's
    std::atomic<bool> skipping_{false};
};

}  // namespace dslaunch::zero
