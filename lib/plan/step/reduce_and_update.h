// The part of a step plan that sums gradients over ranks and updates parameters, and the order of
// these operations. Data path: flat layout, persistent buffers -> [here] -> step plan builder. Used
// by one thread.
#pragma once

#include <vector>

#include "plan/layout/flat_layout.h"
#include "plan/model/model_info.h"
#include "plan/step/chunk_passes.h"
#include "plan/step/link_bytes.h"
#include "plan/step/persistent_buffers.h"
#include "plan/step/step_plan.h"

namespace dslaunch::plan {

// Aborts if OPTIONS contradict each other.
void check_options(const StepPlanOptions& options);

// Returns true if a bucket may be updated as soon as it is reduced, before other buckets are
// reduced.
[[nodiscard]] bool updates_early(const StepPlanOptions& options);
// Returns true if there is no Reduce: the instruction that needs the sums reads the gradients of
// all local ranks itself.
[[nodiscard]] bool sums_itself(const StepPlanOptions& options);

// Returns the trained buckets in the order in which the step reduces them. A bucket is listed as
// often as it is reduced, and tied buckets are at the end. update_order returns each trained bucket
// once, in the order of the updates.
[[nodiscard]] std::vector<int> reduce_order(const ModelInfo& model, const FlatLayout& layout,
                                            const StepPlanOptions& options);
[[nodiscard]] std::vector<int> update_order(const ModelInfo& model, const FlatLayout& layout,
                                            const StepPlanOptions& options);

// Adds the claims of gradient memory, the sums of gradients over ranks, and the updates to one step
// plan.
class ReduceAndUpdate {
  public:
    // All calls add to PLAN. MODEL is needed only here; all other arguments must outlive this
    // object. KEPT must be filled before any function except choose_buffers() is called.
    ReduceAndUpdate(const ModelInfo& model, const FlatLayout& layout,
                    const StepPlanOptions& options, const PersistentBuffers& kept, StepPlan& plan,
                    ChunkPasses& chunk_passes);

    // Chooses the buffers that gradients of several buckets share, from stage 2 on.
    void choose_buffers(const ModelInfo& model);
    // Adds the waits that must come before a backward of SEGMENT in micro step M. They end when the
    // gradient memory of the segment's buckets may be overwritten.
    void add_claims(int segment, int m);
    // Adds the gradients of SEGMENT's parameters to the writes of BACKWARD.
    void join_gradients(int segment, Instruction& backward) const;
    // Adds the reductions of the buckets that the backward of SEGMENT completes, except for tied
    // buckets.
    void add_reductions(int segment, int m);
    // Adds the sum of a tied parameter's gradients over its stages. The sum comes at the end of the
    // step, so that no stage waits for another stage while it still has work.
    void add_tie(const TiedParameter& tie);
    // Adds the reads and writes of chunks on disk with which the step begins. Adds the updates of
    // waiting gradients (kUpdateRest) if the step has them.
    void begin_step(const ModelInfo& model);
    // Adds Norm if it is needed, and the updates if they must wait for all reductions.
    void end_step(const ModelInfo& model);

    // Fills in the bytes that GATHER moves.
    void count_gather(Instruction& gather) const;

  private:
    [[nodiscard]] int gradients(int b) const;
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
    std::vector<std::vector<int>> buckets_of_;  // by segment, buckets that its backward adds to
    std::vector<int> claimed_;  // by bucket, the micro step of its last claim; -1: none
};

}  // namespace dslaunch::plan
