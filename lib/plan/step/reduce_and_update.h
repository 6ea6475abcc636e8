// The part of a step plan that sums gradients over ranks and updates parameters. Data path:
// flat layout, persistent buffers -> [here] -> step plan builder. Used by one thread.
#pragma once

#include "plan/step/chunk_passes.h"
#include "plan/step/link_bytes.h"
#include "plan/step/persistent_buffers.h"
#include "plan/step/step_plan.h"

namespace dslaunch::plan {

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

    // The plan buffer that holds a bucket's gradients.
    [[nodiscard]] int gradients(int b) const;

    // Adds the reductions of the buckets that the backward of SEGMENT completes, without tied ones.
    void add_reductions(int segment, int m);
    // Ties come at the step's end, when all stages of the parameter arrive, so that none waits for
    // another while there is work.
    void add_tie(const TiedParameter& tie);
    // Adds the updates of gradients that waited, at the start of a step that has them.
    void begin_step(const ModelInfo& model);
    // Adds Norm, and the updates if they wait for all reductions.
    void end_step(const ModelInfo& model);

    // Fills in the bytes that GATHER moves.
    void count_gather(Instruction& gather) const;

  private:
    Instruction& add(Op op, Lane lane, int b = -1, int m = -1);
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
