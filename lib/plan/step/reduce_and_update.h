// The part of a step plan that sums gradients over ranks and updates parameters, and its order.
// Data path: flat layout, persistent buffers -> [here] -> step plan builder. Used by one thread.
#pragma once

#include <vector>

#include "plan/layout/flat_layout.h"
#include "plan/model/model_info.h"
#include "plan/step/chunk_passes.h"
#include "plan/step/link_bytes.h"
#include "plan/step/persistent_buffers.h"
#include "plan/step/step_plan.h"

namespace dslaunch::plan {

// Aborts on options that contradict each other.
void check_options(const StepPlanOptions& options);

// Returns true if a bucket may be updated as soon as it is reduced, before others are.
[[nodiscard]] bool updates_early(const StepPlanOptions& options);
// Returns true if there is no Reduce: the instruction that needs the sums reads every local rank's
// gradients itself.
[[nodiscard]] bool sums_itself(const StepPlanOptions& options);

// Returns trained buckets in the order in which the step reduces them, each as often as it is
// reduced, tied ones at the end; and, each once, in the order of their updates.
[[nodiscard]] std::vector<int> reduce_order(const ModelInfo& model, const FlatLayout& layout,
                                            const StepPlanOptions& options);
[[nodiscard]] std::vector<int> update_order(const ModelInfo& model, const FlatLayout& layout,
                                            const StepPlanOptions& options);

// Returns by segment the trained buckets to which its backward adds. If several parts of the stage
// read a parameter, the part of the bucket's ready segment adds to the bucket: the other parts'
// sums wait beside it for the turn of the same micro step there.
[[nodiscard]] std::vector<std::vector<int>> gradient_buckets_of_segments(
    const ModelInfo& model, const FlatLayout& layout, const StepPlanOptions& options);

class ReduceAndUpdate {
  public:
    // Everything is added to PLAN. All arguments must outlive this; KEPT is filled before the first
    // call.
    ReduceAndUpdate(const FlatLayout& layout, const StepPlanOptions& options,
                    const PersistentBuffers& kept, StepPlan& plan, ChunkPasses& chunk_passes)
        : layout_(layout),
          options_(options),
          kept_(kept),
          plan_(plan),
          chunk_passes_(chunk_passes),
          links_(layout, options) {}

    // Returns the plan buffer that holds a bucket's gradients.
    [[nodiscard]] int gradients(int b) const;

    // Adds the reductions of the buckets that the backward of SEGMENT completes, without tied ones.
    void add_reductions(int segment, int m);
    // Adds a tie at the step's end, when all stages of the parameter arrive, so that no stage waits
    // for another while there is work.
    void add_tie(const TiedParameter& tie);
    // Adds the updates of gradients that waited, at the start of a step that has them.
    void begin_step(const ModelInfo& model);
    // Adds Norm, and the updates if they wait for all reductions.
    void end_step(const ModelInfo& model);

    // Fills in the bytes that GATHER moves.
    void count_gather(Instruction& gather) const;

  private:
    void add_reduction(int b, int m);
    void add_accumulates(int b, int m);
    [[nodiscard]] int summed(int b) const;
    void add_norm();
    void add_select();
    void add_rest_update(int c);
    void add_exchange(int b);
    void add_updates(int b);
    void add_update(int c);
    [[nodiscard]] const Bucket& bucket(int b) const { return layout_.buckets[b]; }
    [[nodiscard]] const StateChunk& chunk(int c) const { return plan_.chunks.all[c]; }
    [[nodiscard]] bool is_tied(int b) const { return bucket(b).kind == BucketKind::kTied; }
    [[nodiscard]] bool last_micro_step(int m) const { return m + 1 == options_.accumulation_steps; }

    const FlatLayout& layout_;
    const StepPlanOptions& options_;
    const PersistentBuffers& kept_;
    StepPlan& plan_;
    ChunkPasses& chunk_passes_;
    LinkBytes links_;
};

}  // namespace dslaunch::plan
