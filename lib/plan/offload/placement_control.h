// The schedule by which placement is reconsidered: the steps that are measured, the choice after
// them, the undoing of a change that made steps slower. Data path: step times -> placement
// control -> placement choice. Used by one thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "plan/offload/placement_choice.h"
#include "plan/predict/step_times.h"

namespace dslaunch::plan {

// The schedule, in steps: after the start and after each change one step is not measured, three
// are, and then the choice is made. If nothing changes, twice as many steps pass before the next
// choice, at most 256.
inline constexpr int64_t kPlacementSettle = 1;
inline constexpr int64_t kPlacementMeasured = 3;
inline constexpr int64_t kPlacementIntervalMax = 256;

class PlacementControl {
  public:
    // The arguments are those of PlacementSpace.
    PlacementControl(std::vector<Bytes> chunks, int64_t swap_buffers, int64_t kept,
                     EvictionRule eviction);

    // Adds a step that has run. Returns true if all ranks must choose now, by decide().
    [[nodiscard]] bool add(const StepTimes& step);
    // Returns what this rank has measured since the last choice; bytes and free memory are the
    // caller's to fill in.
    [[nodiscard]] PlacementFacts measured() const;
    // AGREED is the same on all ranks, so that all of them choose the same.
    [[nodiscard]] PlacementChoice decide(const PlacementFacts& agreed);

    [[nodiscard]] int64_t kept() const { return kept_; }
    [[nodiscard]] int64_t kept_most() const { return kept_most_; }  // the most so far
    // Returns the outcome at the end of the run: expected and measured seconds.
    [[nodiscard]] std::string summary() const;

  private:
    struct Change {
        int64_t kept_before = 0;
        double step_s_before = 0;
        double noise_s_before = 0;
        double compute_s_before = 0;
        double expected_step_s = 0;
    };
    [[nodiscard]] bool made_slower(const PlacementFacts& agreed) const;
    [[nodiscard]] PlacementChoice take_back(const PlacementFacts& agreed);

    std::vector<Bytes> chunks_;
    int64_t swap_buffers_;
    int64_t kept_;
    int64_t kept_most_;
    EvictionRule eviction_;
    int64_t settle_ = kPlacementSettle;
    int64_t interval_ = kPlacementMeasured;
    int64_t left_ = kPlacementMeasured;  // steps to measure before the next choice
    bool may_keep_more_ = true;
    std::vector<StepTimes> window_;  // the last steps since the last choice
    std::optional<Change> unjudged_;
    // These are for the summary.
    std::optional<double> first_step_s_;
    std::optional<double> expected_step_s_;  // expected by the last change for speed
    double last_step_s_ = 0;                 // agreed at the last choice
};

}  // namespace dslaunch::plan
