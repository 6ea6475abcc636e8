// The part of a step plan that moves offloaded chunks: their extents, the buffers of chunks and of
// their gradients' sums, the reads and writes. Data path: state chunks -> chunk passes -> step plan
// builder. Used by one thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "plan/step/step_plan.h"

namespace dslaunch::plan {

// The reduced gradients of chunks that wait for the norm: the buffer of each while micro steps are
// added up and when its chunk is updated, with the reads and writes.
struct SumUse {
    int chunk = 0;  // index into StateChunks::all
    int buffer = 0;
    bool read = false;   // from disk, before the use
    bool write = false;  // to disk, after the use: the buffer is needed before the chunk is used
                         // again
};

struct SumPasses {
    int chunks = 0;
    int buffers = 0;
    // One use for each time that a chunk's gradients are added to the sums, then one for each
    // chunk's update; nothing is held before the first use.
    std::vector<SumUse> uses;

    [[nodiscard]] size_t first_update() const { return uses.size() - static_cast<size_t>(chunks); }
};

class ChunkPasses {
  public:
    // Everything is added to PLAN, whose chunks are chosen. PLAN and OPTIONS must outlive this.
    ChunkPasses(StepPlan& plan, const StepPlanOptions& options) : plan_(plan), options_(options) {}

    // Adds extents and buffers. REDUCE_ORDER has the trained buckets in the order in which the step
    // reduces them, over all micro steps.
    void add_buffers(std::span<const int> reduce_order);

    // Begins a step: chunks that the step before has left in the buffers make room for the first
    // turns of this one.
    void begin_turns();
    // Returns true if the sums of a chunk's gradients pass; else they stay in memory, which is the
    // caller's task.
    [[nodiscard]] bool sums_pass(int c) const {
        return options_.keeps_reduced() && chunk(c).states_on_disk();
    }
    // Called around a chunk's Accumulate, in the order of add_buffers(): reads the sums to which it
    // adds, and writes them if the buffer is needed. Join is for chunks whose sums pass.
    void before_accumulate(int c);
    void join_accumulate(Instruction& accumulate) const;
    void after_accumulate(int c);
    // Called when all sums are complete: reads the sums of the first turns.
    void begin_updates();
    // Called around a chunk's Update: reads a passing chunk before it, and makes room for another
    // after it. Its sums come and go with it.
    void join_update(Instruction& update);
    void after_update(int c);
    // Does the same for an update that takes no sums of this step (kUpdateRest), and for one that
    // leaves the chunk in its place.
    void join_chunk(Instruction& update);
    void after_chunk(int c);
    void join_sums(Instruction& update) const;
    void after_sums(int c);
    // Gives READ this rank's part of its bucket, from disk or from the buffers that hold it then.
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
    size_t next_sum_ = 0;            // use of the next Accumulate
    std::vector<int> sum_turn_;      // by chunk, its place among the updates with sums, or -1
    std::vector<int> extents_;       // by chunk on disk, its plan buffer
    std::vector<int> sum_extents_;   // by chunk, plan buffer of its sums; -1: in memory
    std::vector<int> swap_buffers_;  // plan buffers for chunks that pass
    std::vector<int> first_turn_;    // by swap buffer, its first and last turn
    std::vector<int> last_turn_;
    std::vector<int> next_turn_;    // by turn, the next one of its buffer; -1: none
    std::vector<int> sum_buffers_;  // plan buffers for sums that pass
    std::vector<int> held_;         // by swap buffer, the chunk whose parameters can be read in it
                                    // now
};

}  // namespace dslaunch::plan
