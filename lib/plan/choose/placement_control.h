// Chooses again, every few steps, how many chunks are kept in memory, and undoes a change that made
// steps slower. Computes the times of a step from its spans. Data path: executor's spans, free
// memory -> [here] -> the next step plan (OffloadPlan::kept_chunks). Used by one thread.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "plan/choose/placement_choice.h"
#include "plan/step/step_plan.h"

namespace dslaunch::plan {

// The times of one step. UNITS: seconds. Arrays are indexed by lane.
struct StepTimes {
    double step_s = 0;  // since the end of the previous step
    std::array<double, kLanes> busy_s{};
    // The time that each lane contributes to the critical path. The critical path is the chain of
    // instructions that determined the end of the step; each instruction waited for the previous
    // one in the chain. The sum over the lanes is the time from the beginning of the step to the
    // end of its last instruction.
    std::array<double, kLanes> on_path_s{};

    // Return the entries for LANE.
    [[nodiscard]] double busy(Lane lane) const { return busy_s[static_cast<size_t>(lane)]; }
    [[nodiscard]] double on_path(Lane lane) const { return on_path_s[static_cast<size_t>(lane)]; }
};

// Returns the times of a step. SPANS has one entry per instruction of PLAN, in the same order.
// STEP_S becomes the result's step_s.
[[nodiscard]] StepTimes step_times(const StepPlan& plan, std::span<const InstructionSpan> spans,
                                   double step_s);

// The schedule of choices, in steps. After the start and after each change, kPlacementSettle steps
// run without measurement. Then kPlacementMeasured steps are measured, and a choice is made.
// Whenever a choice changes nothing, the number of steps before the next choice doubles, up to
// kPlacementIntervalMax.
inline constexpr int64_t kPlacementSettle = 1;
inline constexpr int64_t kPlacementMeasured = 3;
inline constexpr int64_t kPlacementIntervalMax = 256;

// The control of one rank. All ranks make the same choices if they call add() for every step and
// decide() with equal facts.
class PlacementControl {
  public:
    // The arguments have the meaning of the fields of PlacementSpace.
    PlacementControl(std::vector<Bytes> chunks, int64_t swap_buffers, int64_t kept,
                     EvictionRule eviction);

    // Adds the times of a step that has run. Returns true if all ranks must choose now, with
    // decide().
    [[nodiscard]] bool add(const StepTimes& step);
    // Returns what this rank has measured since the last choice. The caller fills in the bytes read
    // and written, and the free memory.
    [[nodiscard]] PlacementFacts measured() const;
    // Chooses from AGREED, which is the same on all ranks, so that all of them make the same
    // choice.
    [[nodiscard]] PlacementChoice decide(const PlacementFacts& agreed);

    // Returns the number of chunks that are kept now.
    [[nodiscard]] int64_t kept() const { return kept_; }
    [[nodiscard]] int64_t kept_most() const { return kept_most_; }  // the largest kept() so far
    // Returns a line about the outcome at the end of the run: the expected and the measured seconds
    // of a step.
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
    std::vector<StepTimes> window_;  // the newest steps since the last choice
    std::optional<Change> unjudged_;
    // The fields below are used only by summary().
    std::optional<double> first_step_s_;
    std::optional<double> expected_step_s_;  // promised by the last change that should save time
    double last_step_s_ = 0;                 // all ranks' agreed step_s at the last choice
};

}  // namespace dslaunch::plan
