// The part of a step plan that moves offloaded chunks: their extents on disk, the buffers of chunks
// and of the sums of their gradients, the reads and writes. Data path: state chunks -> chunk passes
// -> step plan builder. Used by one thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "plan/step/step_plan.h"

namespace dslaunch::plan {

// One use of the sums of a chunk's gradients: a micro step's gradients are added to the sums, or
// the chunk is updated from them. Between uses, the sums wait in a buffer or on disk. The members
// tell what is read before the use and written after it.
struct SumUse {
    int chunk = 0;  // index into StateChunks::all
    int buffer = 0;
    bool read = false;   // from disk, before the use
    bool write = false;  // to disk, after the use, since other sums need the buffer before the next
                         // use
};

// The uses of all sums that pass between memory and disk in a step.
struct SumPasses {
    int chunks = 0;
    int buffers = 0;
    // One use for each time that a chunk's gradients are added to the sums, then one use for each
    // chunk's update. No buffer holds anything before the first use.
    std::vector<SumUse> uses;

    // Returns the index of the first use for an update.
    [[nodiscard]] size_t first_update() const { return uses.size() - static_cast<size_t>(chunks); }
};

// Adds buffers and instructions for chunks to one step plan. C is an index into StateChunks::all.
class ChunkPasses {
  public:
    // All calls add to PLAN, whose chunks must have been chosen. PLAN and OPTIONS must outlive this
    // object.
    ChunkPasses(StepPlan& plan, const StepPlanOptions& options) : plan_(plan), options_(options) {}

    // Adds extents and buffers. REDUCE_ORDER lists the trained buckets in the order in which the
    // step reduces them, over all micro steps.
    void add_buffers(std::span<const int> reduce_order);

    // Begins a step: the chunks that the previous step has left in the buffers make room for the
    // chunks of this step's first turns.
    void begin_turns();
    // Returns true if the sums of a chunk's gradients pass between memory and disk. Otherwise the
    // sums stay in memory that the caller must provide.
    [[nodiscard]] bool sums_pass(int c) const {
        return options_.keeps_reduced() && chunk(c).states_on_disk();
    }
    // Called around a chunk's Accumulate, for the chunks in the order of add_buffers().
    // before_accumulate adds the Read of the chunk's sums. join_accumulate adds the buffer of the
    // sums to the instruction. after_accumulate adds the Write of the sums if the sums of a
    // different chunk need the buffer. REQUIRES, for join_accumulate: sums_pass(c).
    void before_accumulate(int c);
    void join_accumulate(Instruction& accumulate) const;
    void after_accumulate(int c);
    // Called when all sums are complete. Reads the sums of the first turns.
    void begin_updates();
    // Called before and after a chunk's Update. join_update adds the buffers of the chunk and of
    // its sums to the instruction. after_update writes the chunk if another chunk needs its buffer,
    // and reads the next chunk and the next sums.
    void join_update(Instruction& update);
    void after_update(int c);
    // Do a part of the work of join_update and after_update. join_chunk and after_chunk are for an
    // update that uses no sums of this step (kUpdateRest). join_sums and after_sums are for an
    // update whose chunk is not moved.
    void join_chunk(Instruction& update);
    void after_chunk(int c);
    void join_sums(Instruction& update) const;
    void after_sums(int c);
    // Adds this rank's part of a bucket to READ, the instruction that reads the bucket. The part
    // comes from the buffers that hold it when READ runs, or else from disk.
    void join_bucket_read(Instruction& read) const;

  private:
    [[nodiscard]] const StateChunk& chunk(int c) const { return plan_.chunks.all[c]; }
    [[nodiscard]] ChunkLayout layout_of(int c) const {
        return chunk_layout(chunk(c), options_.chunk_format());
    }
    [[nodiscard]] int turns() const { return static_cast<int>(plan_.chunks.turns.size()); }
    [[nodiscard]] int chunk_in(int turn) const { return plan_.chunks.turns[turn]; }
    [[nodiscard]] size_t buffer_of(int turn) const {
        return static_cast<size_t>(plan_.buffer_of_turn[turn]);
    }
    [[nodiscard]] const SumUse& use() const { return sums_.uses[next_sum_]; }
    [[nodiscard]] const SumUse& update_use(int c) const {
        return sums_.uses[sums_.first_update() + sum_turn_[c]];
    }
    void add_swap_buffers(std::vector<int>& buffers, const char* name, int64_t bytes, int count);
    void choose_sums(std::span<const int> reduce_order);
    Instruction& add(Op op, int c);
    void add_write(int turn);
    void add_read(int turn);
    void read_sums(Instruction& read, const SumUse& use) const;
    [[nodiscard]] int next_with_sums(int c) const;

    StepPlan& plan_;
    const StepPlanOptions& options_;
    SumPasses sums_;
    size_t next_sum_ = 0;            // index of the use for the next Accumulate
    std::vector<int> sum_turn_;      // by chunk, its index among the updates with sums, or -1
    std::vector<int> extents_;       // by chunk on disk, its plan buffer
    std::vector<int> sum_extents_;   // by chunk, plan buffer of its sums; -1: in memory
    std::vector<int> swap_buffers_;  // plan buffers for chunks that pass
    std::vector<int> first_turn_;    // by swap buffer, its first turn (and last_turn_: its last)
    std::vector<int> last_turn_;
    std::vector<int> next_turn_;    // by turn, the next turn of the same buffer; -1: none
    std::vector<int> sum_buffers_;  // plan buffers for sums that pass
    std::vector<int> held_;         // by swap buffer, the chunk whose parameters are in it
};

}  // namespace dslaunch::plan
