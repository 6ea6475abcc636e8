// A rank's optimizer states and offloaded parameters, chunk by chunk: in memory for good, kept
// there while the plan says so, or on disk and in a slot while they pass. Where it stands: step
// plan -> state store -> ZeRO state, parameter store. Threads: read() and read_parameters() by the
// read lane, write() by the write lane, the rest by the communication lane, ordered by the plan's
// waits; outside of a step by any one thread.
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
#include "zero/states/chunk_codec.h"
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
    [[nodiscard]] const std::vector<ChunkPart>& parts(int c) const { return parts_[c]; }
    [[nodiscard]] std::span<const int> chunks_of(int bucket) const;

    // What the moments hold before the first step: FILL writes elements of a bucket's moment K.
    // Before put() and begin(); by default 0.
    using FillMoments =
        std::function<void(int bucket, size_t k, const Range& elements, float* into)>;
    void set_moments(FillMoments fill) { fill_moments_ = std::move(fill); }
    // Sets a chunk's parameters (where offloaded) and master copy (where there is one): FILL writes
    // elements of the bucket, in the dtype asked for. Moments get their first values. Before the
    // first step.
    using Fill = std::function<void(const Range& elements, std::byte* into, DType dtype)>;
    void put(int c, DType parameter_dtype, const Fill& fill);
    // All chunks are put, and what they came from is given back: takes the memory of the moments,
    // and brings the chunks that a step expects in its slots.
    void begin();

    // Outside of a step: PLAN, whose chunks differ in which are kept alone, takes the place of the
    // plan, and must outlive the store. What changed in the slots is written, as the next step
    // would; chunks that are not kept any more are written and their memory is given back; chunks
    // that now are, are read into memory of their own; the slots get what the next step expects
    // there. Nothing else moves. Blocks until all is done. By the thread that made FILE. Throws
    // Error{kDisk}, Error{kSetup} where memory runs out.
    void change_plan(const plan::StepPlan& plan);

    // Sums of gradients start anew. MEASURED: what packing changes is measured in this step.
    void begin_step(bool measured);
    // No chunk changes any more in this step, and no sums are used: it is not worth moving them.
    void skip_step() { skipping_ = true; }
    // What a Read or Write of a chunk says: the chunk, its sums, or both.
    void read(const plan::Instruction& read);
    void write(const plan::Instruction& write);
    // [numel of the chunk] fp32: where an Accumulate adds up. FRESH: nothing of this step lies
    // there yet. REQUIRES: else the sums are in memory, or in their slot as the plan says.
    [[nodiscard]] float* sums_of(const plan::Instruction& accumulate, bool fresh);
    // What an Update works on. REQUIRES: the chunk is in memory, or in its slots as the plan says.
    [[nodiscard]] ChunkView view(const plan::Instruction& update);
    // The chunk in SLOT was updated: it must be written.
    void set_changed(int slot) { changed_[slot] = updated_[slot] = 1; }

    // Outside of a step: where the parts of a chunk lie in memory as long as the plan stays;
    // nullopt: some are on disk.
    [[nodiscard]] std::optional<ChunkView> view_at_rest(int c);
    // Outside of a step: the parts of any chunk, in memory until USE returns, but for sums and for
    // 16-bit parameters, which only their master copies tell for certain.
    void visit(int c, const std::function<void(const ChunkView&)>& use);

    // This rank's elements of a bucket whose parameters are offloaded, each at its place behind
    // BASE, from disk or from the slots that hold them.
    void read_parameters(int bucket, std::byte* base);
    // The master copy of a bucket's pieces, each at piece.range.begin behind BASE; from disk where
    // it is there. REQUIRES: there are master copies. Outside of a step.
    void copy_master(int bucket, float* base);

    // Outside of a step; by write().
    [[nodiscard]] std::vector<std::string> describe_packing() const;

    // In memory, slots not counted.
    [[nodiscard]] Bytes parameter_bytes() const;
    [[nodiscard]] Bytes master_bytes() const;
    [[nodiscard]] Bytes moment_bytes() const;
    [[nodiscard]] Bytes sum_bytes() const;
    // Of the slots, and of what is packed on its way.
    [[nodiscard]] Bytes slot_bytes() const { return Bytes{std::ssize(memory_.bytes())}; }

  private:
    // What lies on disk together. Packed: its sections in an image of it, else as in memory.
    struct StoredPart {
        storage::ExtentId extent;
        std::vector<ChunkSection> sections;
        SectionLengths lengths{};
        uint32_t writes = 0;
    };
    struct Stored {
        StoredPart parameters;
        StoredPart states;
        storage::ExtentId sums;
    };
    // A part of a chunk and where it lies in memory.
    struct Transfer {
        StoredPart* part = nullptr;
        std::span<std::byte> memory;
    };
    // What a direction packs with.
    struct Packer {
        std::span<std::byte> image;
        std::optional<ChunkCodec> codec;
    };
    void add_packers(int64_t begin, const plan::PackingRoom& room);
    void find_parts(int c, const ShardMap& map);
    void count_slots();
    void fill_slots();
    void swap_slots(size_t a, size_t b);
    [[nodiscard]] std::span<std::byte> home(int c);
    [[nodiscard]] int64_t kept_numel(bool plan::StateChunk::*field) const;
    void add_extents(int c);
    void fill_parts(int c, std::byte* memory, DType dtype, const Fill& fill) const;
    void fill_moments(int c, size_t k, float* into) const;
    void copy_out(int c, const std::byte* from, int64_t element_bytes, std::byte* base) const;
    void read_chunk(int c, int k);
    [[nodiscard]] std::span<std::byte> slot(int k) const;
    [[nodiscard]] OffloadFile::Part sum_transfer(int c, int k) const;
    // Where the parameters of a chunk end and its states begin.
    [[nodiscard]] static int64_t states_begin(const plan::ChunkLayout& layout);
    [[nodiscard]] std::vector<Transfer> transfers(int c, std::span<std::byte> memory, bool whole);
    // AS_IT_IS: what goes along and is never packed.
    void load(std::span<const Transfer> transfers,
              std::span<const OffloadFile::Part> as_it_is = {});
    void save(std::span<const Transfer> transfers,
              std::span<const OffloadFile::Part> as_it_is = {});
    [[nodiscard]] bool packs(const StoredPart& part) const;
    [[nodiscard]] ChunkView view_in(int c, std::byte* memory) const;
    void add_resident(int c, ChunkView& view);
    [[nodiscard]] float* resident(int c, ZeroedFloats& all) const;
    [[nodiscard]] std::byte* resident_parameters(int c);
    // Of a chunk, for good or in its slot; null: they must be read.
    [[nodiscard]] const std::byte* parameters_in_memory(int c);
    [[nodiscard]] float* sums_in(int c, int k) const;
    [[nodiscard]] int slot_holding(int c) const;

    const plan::StepPlan* plan_;
    plan::ChunkFormat format_;
    OffloadFile* file_;
    std::vector<plan::ChunkLayout> layouts_;  // in a slot, or where it is kept; as the next ones:
                                              // by chunk
    std::vector<std::vector<ChunkPart>> parts_;
    std::vector<int64_t> resident_at_;  // of its states among those that stay in memory, elements
    // Of chunks that are kept: laid out as in a slot, then the sums of its gradients.
    std::vector<ZeroedFloats> homes_;
    std::vector<Stored> stored_;
    std::vector<int64_t> parameters_at_;  // of those that stay in memory, bytes; -1: they do not
    std::vector<int> indices_;            // 0, 1, …: what chunks_of() points into
    FillMoments fill_moments_;
    int64_t resident_numel_ = 0;
    ZeroedFloats master_;
    std::array<ZeroedFloats, 2> moments_;
    ZeroedFloats sums_;
    storage::IoArena parameters_;  // that stay in memory though others are on disk
    int64_t slots_max_ = 0;        // when no chunk is kept
    int64_t sum_slots_max_ = 0;
    storage::IoArena memory_;  // slots of chunks, slots of sums, what is packed on its way
    int64_t slot_stride_ = 0;  // bytes
    int64_t sum_stride_ = 0;   // bytes
    Packer reader_;
    Packer writer_;
    storage::IoArena bounce_;    // parameters of two chunks on their way to where they are gathered
    int64_t bounce_bytes_ = 0;   // of the largest chunk's
    std::vector<int> places_;    // where each slot lies; as the next three: by slot
    std::vector<int> held_;      // chunk in it
    std::vector<char> changed_;  // since it was written
    std::vector<char> updated_;  // since it was read
    std::vector<int> sums_held_;  // chunk whose sums are in each of their slots
    std::atomic<bool> skipping_{false};
};

}  // namespace dslaunch::zero
