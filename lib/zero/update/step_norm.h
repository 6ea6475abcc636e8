// The norm of a step's gradients, by which they are clipped, and the finding of the rank whose
// gradients are not finite. Data path: gradient sums -> [here] -> update paths. Threads: the
// compute lane calls look_for_overflow(), the communication lane the rest.
#pragma once

#include <optional>
#include <vector>

#include "device/memory.h"
#include "zero/gradients/chunk_norm.h"
#include "zero/gradients/gradient_norm.h"
#include "zero/update/rank_parts.h"

namespace dslaunch::zero {

class StepNorm {
  public:
    // PARTS and ARENA must outlive this.
    StepNorm(RankParts& parts, const runtime::Arena& arena);

    void begin_step();
    // Traces an overflow to its rank while a loss scale is searched for, in a bucket that this rank
    // has completed: later sums no longer show the rank.
    void look_for_overflow(int bucket);
    // Takes a chunk's reduced gradients of the step, if the plan keeps them.
    void take_sums(int chunk, const float* sums);
    // Computes the norm and the factor of clipping. Every rank calls it. Returns whether the
    // gradients are finite; if not, the step's overflow says whose. Throws Error{kDiverged} where
    // no loss scale is searched for, naming the first parameter.
    [[nodiscard]] bool compute();
    // Returns the last norm; nullopt if there was none.
    [[nodiscard]] std::optional<double> value() const { return value_; }

  private:
    [[nodiscard]] std::vector<double> block_squares();
    [[nodiscard]] int first_bad_parameter();
    void note_overflow(int bad_parameter);

    RankParts& parts_;
    GradientNorm norm_;
    std::optional<ChunkNorm> chunks_;  // present if the norm is of kept sums
    // One per trained slice, on the device: 1 if this rank's own gradient was not finite in this
    // step. Empty unless a step may be skipped.
    device::Memory nonfinite_;
    std::optional<double> value_;
};

}  // namespace dslaunch::zero
