// The norm of a step's gradients, by which they are clipped, and the search for the rank whose
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

// The norm of the steps of one rank; see the top of this file.
class StepNorm {
  public:
    // PARTS and ARENA must outlive this object.
    StepNorm(RankParts& parts, const runtime::Arena& arena);

    // Forgets the flags of the last step's gradients.
    void begin_step();
    // Notes which of this rank's gradients in a completed bucket are not finite, while a loss scale
    // is searched for. Called before gradients are summed over ranks, because the sums do not show
    // which rank's gradients were not finite.
    void look_for_overflow(int bucket);
    // Reads a chunk's reduced gradients of the step, if the plan keeps them.
    void take_sums(int chunk, const float* sums);
    // Computes the norm and the clip factor. Every rank calls it. Returns true if the gradients are
    // finite; if not, the step's overflow names the parameter and the rank. If no loss scale is
    // searched for, throws Error{kDiverged} instead, naming the first parameter whose gradient is
    // not finite.
    [[nodiscard]] bool compute();
    // Returns the last norm, or nullopt if there was no norm.
    [[nodiscard]] std::optional<double> value() const { return value_; }

  private:
    [[nodiscard]] std::vector<double> block_squares();
    [[nodiscard]] int first_bad_parameter();
    void note_overflow(int bad_parameter);

    RankParts& parts_;
    GradientNorm norm_;
    std::optional<ChunkNorm> chunks_;  // set if the norm is computed from kept sums
    // One flag per trained slice, on the device: 1 if this rank's gradient was not finite in this
    // step. Empty if no step may be skipped.
    device::Memory nonfinite_;
    std::optional<double> value_;
};

}  // namespace dslaunch::zero
