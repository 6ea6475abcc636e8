// The runs of a bucket, each of which an update changes at once, and the number of updates that
// each slice has had. Data path: gradient sums -> rank parts -> [here] -> update paths,
// checkpoints. Threads: the lane that updates; between steps any one thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "plan/step/step_plan.h"
#include "runtime/save/saved_state.h"
#include "zero/states/update_rules.h"

namespace dslaunch::zero {

// Neighbouring slices of a bucket that got a gradient, follow the same rule and have had the same
// number of updates. If the rule updates whole tensors, a run is a single slice.
struct Run {
    Range range;       // within the bucket
    int64_t step = 1;  // the number of this update of the slices, from 1
    int rule = 0;      // index into UpdateRules::rules
    int slice = -1;    // index of the first slice
};

// Finds runs and counts updates; see the top of this file.
class UpdateRuns {
  public:
    // LAYOUT and RULES must outlive this object. SAVED contains the numbers of updates before a
    // resume. It is null if the run does not resume.
    UpdateRuns(const plan::FlatLayout& layout, const UpdateRules& rules,
               runtime::SavedState* saved);

    // Finds the runs of BUCKET when its update begins. USED has one flag per slice of the bucket,
    // above 0 if the slice got a gradient. If USED is empty, all slices with earlier updates count
    // as used. If COUNTS is true, counts this step's update of the slices.
    void open(const plan::Bucket& bucket, std::span<const float> used, bool counts);
    // Returns the runs of the bucket that was opened last.
    [[nodiscard]] const std::vector<Run>& now() const { return runs_; }
    // Returns true if these runs contain all elements of BUCKET, which was opened last.
    [[nodiscard]] bool cover(const plan::Bucket& bucket) const;
    // Returns the rule that a run follows.
    [[nodiscard]] const UpdateRule& rule(const Run& run) const {
        return rules_.rules[static_cast<size_t>(run.rule)];
    }
    // Returns the number of updates that a trained slice has had, including updates before a
    // resume.
    [[nodiscard]] int64_t updates_of(int slice) const {
        return updates_[static_cast<size_t>(slice)];
    }

  private:
    const plan::FlatLayout& layout_;
    const UpdateRules& rules_;
    std::vector<int64_t> updates_;  // by trained slice
    std::vector<Run> runs_;
};

}  // namespace dslaunch::zero
