// The tensors that the micro steps of a step hold between instructions. In a pipeline, several
// micro steps are in progress at once. Data path: step plan builder -> [here] -> frees of its
// instructions. Used by one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "plan/pipeline/stage_work.h"

namespace dslaunch::plan {

// Numbers the cuts of a stage, which are the places before, between and after segments. Stores the
// plan buffers that each micro step holds. Each part of the stage has separate cuts at its ends,
// but parts that are neighbours in the model share the cut between them.
class HeldTensors {
  public:
    // PARTS is the result of parts_of() for WORK.
    HeldTensors(const std::vector<StagePart>& parts, const StageWork& work, int64_t micro_steps) {
        int cuts = 0;
        for (const StagePart& part : parts) {
            const bool shares_cut =
                &part != &parts.front() && work.in_pipeline() && work.stay(part.before);
            if (shares_cut) --cuts;
            for (int s = part.segments.begin; s < part.segments.end; ++s)
                cut_before_.push_back(cuts++);
            ++cuts;
        }
        const std::vector<int> by_cut(static_cast<size_t>(cuts), -1);
        const std::vector<int> by_segment(cut_before_.size(), -1);
        micro_steps_.assign(static_cast<size_t>(micro_steps),
                            {by_cut, by_cut, by_segment, by_segment, {}});
    }

    // Each function returns a reference to the plan buffer of a tensor in micro step M. The caller
    // reads the buffer's index or replaces it. The index is -1 if the tensor is not held. Gradients
    // belong to the live values at the same cut.
    [[nodiscard]] int& values_before(int segment, int m) { return of(m).values[cut(segment)]; }
    [[nodiscard]] int& values_after(int segment, int m) { return of(m).values[cut(segment) + 1]; }
    [[nodiscard]] int& gradients_before(int segment, int m) {
        return of(m).gradients[cut(segment)];
    }
    [[nodiscard]] int& gradients_after(int segment, int m) {
        return of(m).gradients[cut(segment) + 1];
    }
    [[nodiscard]] int& activations(int segment, int m) { return of(m).activations[segment]; }
    [[nodiscard]] int& weight_half(int segment, int m) { return of(m).weight_halves[segment]; }
    // Returns the live values at all cuts.
    [[nodiscard]] std::span<int> values(int m) { return of(m).values; }
    // Returns the plan buffers for gradients to which several segments add, by trained slice.
    [[nodiscard]] std::map<int, int>& sums(int m) { return of(m).sums; }

  private:
    struct MicroStep {
        std::vector<int> values;         // live values, by cut
        std::vector<int> gradients;      // gradients of the live values, by cut
        std::vector<int> activations;    // by segment
        std::vector<int> weight_halves;  // by segment
        std::map<int, int> sums;
    };
    [[nodiscard]] MicroStep& of(int m) { return micro_steps_[m]; }
    [[nodiscard]] size_t cut(int segment) const {
        return static_cast<size_t>(cut_before_[segment]);
    }

    std::vector<int> cut_before_;  // by segment
    std::vector<MicroStep> micro_steps_;
};

}  // namespace dslaunch::plan
