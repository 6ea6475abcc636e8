// The part of a step plan that gives the compute lane its parameters: waits until they are written,
// gathers them before their use, and releases them after it. Data path: gather schedule -> [here]
// -> step plan builder. Used by one thread.
#pragma once

#include <vector>

#include "plan/step/chunk_passes.h"
#include "plan/step/gather_schedule.h"
#include "plan/step/persistent_buffers.h"
#include "plan/step/reduce_and_update.h"
#include "plan/step/step_plan.h"

namespace dslaunch::plan {

// Adds instructions for the parameters that the segments of the compute lane read. The gather
// schedules refer to positions: each segment that the compute lane runs is one position.
class ParameterGathers {
  public:
    // All calls add to PLAN. All arguments must outlive this object.
    ParameterGathers(const FlatLayout& layout, const StepPlanOptions& options,
                     const PersistentBuffers& kept, StepPlan& plan, const ChunkPasses& chunk_passes,
                     const ReduceAndUpdate& sums)
        : layout_(layout),
          options_(options),
          kept_(kept),
          plan_(plan),
          chunk_passes_(chunk_passes),
          sums_(sums) {}

    // Chooses the gathers and their buffers. Must be called first. The functions below also need
    // KEPT to be filled in.
    void choose(const ModelInfo& model, const std::vector<RecomputeGroup>& groups);
    // Begins a work of the part with index PART. SCHEDULE is the member of PartGathers that has the
    // gathers of this work.
    void begin_work(size_t part, GatherSchedule PartGathers::*schedule);

    // Adds a wait for each bucket of SEGMENT that the step has not used before. The wait ends when
    // every local rank has written its part of the bucket's parameters.
    void add_awaits(int segment);
    // Adds the gathers that are due before the compute lane's next segment, in micro step M.
    void add_gathers(int m);
    // Adds the parameters of SEGMENT to the reads of INSTRUCTION. Gathered buckets are read from
    // their gather buffers, and other buckets in place.
    void join(int segment, Instruction& instruction) const;
    // Called when the compute lane has run a segment. Adds the releases that are due.
    void end_position(int m);
    // Called at the end of the step. Releases the buckets that the host has kept until then.
    void release_kept();

  private:
    [[nodiscard]] bool is_gathered(int b) const { return options_.is_gathered(layout_.buckets[b]); }
    [[nodiscard]] bool is_kept(const GatherUse& use) const;
    void add_bucket_read(const GatherUse& use, int m);
    void add_release(const GatherUse& use, int m);

    const FlatLayout& layout_;
    const StepPlanOptions& options_;
    const PersistentBuffers& kept_;
    StepPlan& plan_;
    const ChunkPasses& chunk_passes_;
    const ReduceAndUpdate& sums_;
    std::vector<std::vector<int>> buckets_of_;  // by segment
    StepGathers gathers_;
    const GatherSchedule* schedule_ = nullptr;  // schedule of the current work
    int position_ = 0;                          // position of the compute lane in schedule_
    std::vector<GatherUse> kept_gathers_;       // gathers of this step that hosts keep
    std::vector<int> buffer_of_bucket_;         // by bucket, its gather buffer now
    std::vector<char> awaited_;                 // by bucket
};

}  // namespace dslaunch::plan
