// The number of offloaded chunks to keep in memory, by measurements of the last steps: the times of
// a step that ran, the choice, the steps after which it is made, the undoing of a change that made
// steps slower. Data path: executor's spans, free memory -> [here] -> the next step plan
// (OffloadPlan::kept_chunks). Used by one thread.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/kinds/eviction_rule.h"
#include "plan/choose/choice.h"
#include "plan/step/step_plan.h"

namespace dslaunch::plan {

// The free memory that a rank leaves when it keeps more chunks, or an eighth of the free memory if
// that is more. With less than half of this free it gives chunks back. The gap keeps chunks from
// moving back and forth.
inline constexpr Bytes kPlacementReserve = mib(64);
// The least gain that a change must promise, and the least wait for disks that matters, as a share
// of a step's time.
inline constexpr double kPlacementGainMin = 0.05;

// UNITS: seconds. Arrays are by lane.
struct StepTimes {
    double step_s = 0;  // the whole step, with the time between two steps
    std::array<double, kLanes> busy_s{};
    // Times of the chain of instructions for which the step's end waited; each waited for the one
    // before it. Their sum is the time from the begin of the step to its last instruction's end.
    std::array<double, kLanes> on_path_s{};

    [[nodiscard]] double busy(Lane lane) const { return busy_s[static_cast<size_t>(lane)]; }
    [[nodiscard]] double on_path(Lane lane) const { return on_path_s[static_cast<size_t>(lane)]; }
};

// Returns the times of a step. SPANS belong to PLAN's instructions, in order; STEP_S is its step_s.
[[nodiscard]] StepTimes step_times(const StepPlan& plan, std::span<const InstructionSpan> spans,
                                   double step_s);

// The facts of one rank, or of all of them together (agreed_facts).
struct PlacementFacts {
    double step_s = 0;
    double noise_s = 0;  // difference between steps
    // Busy times of lanes in a step.
    double compute_s = 0;
    double communication_s = 0;
    double read_s = 0;
    double write_s = 0;
    // Times that a step waited for lanes (StepTimes::on_path_s).
    double waited_read_s = 0;
    double waited_write_s = 0;
    Bytes read;  // per step
    Bytes written;
    Bytes free;  // memory that a rank may still take, if all ranks of its host take as much
};

// Returns the facts by which all ranks choose: the longest times, but the shortest communication,
// in which a waiting rank is not busy, and the least free memory. REQUIRES: RANKS is not empty.
[[nodiscard]] PlacementFacts agreed_facts(std::span<const PlacementFacts> ranks);

struct PlacementSpace {
    std::span<const Bytes> chunks;  // memory of each chunk, in the order in which they are kept
    int64_t swap_buffers = 0;       // through which chunks that are not kept pass
    int64_t kept = 0;               // number of chunks kept now
    bool may_keep_more = true;
    EvictionRule eviction = EvictionRule::kFifo;
};

// The number of chunks to keep. Its cost is the expected time of a step in seconds if more are
// kept, else the measured one.
using PlacementChoice = Choice<int64_t, double>;

// Returns the choice. If a step waits for the disk and memory is free, as many more chunks are kept
// as fit, but no more than bring the busier disk lane down to the busier of the other lanes; each
// chunk counts with its share of the measured time. If the step waits for disk lanes that are not
// the busiest, all that fit are kept, since their work cannot be hidden. If memory is short, fewer
// are kept; else as many as before.
[[nodiscard]] PlacementChoice choose_placement(const PlacementFacts& facts,
                                               const PlacementSpace& space);

// The schedule, in steps: after the start and after each change one step is not measured, three
// are, and then the choice is made. If nothing changes, twice as many steps pass before the next
// choice, at most 256.
inline constexpr int64_t kPlacementSettle = 1;
inline constexpr int64_t kPlacementMeasured = 3;
inline constexpr int64_t kPlacementIntervalMax = 256;

class PlacementControl {
  public:
    // The arguments are the fields of PlacementSpace.
    PlacementControl(std::vector<Bytes> chunks, int64_t swap_buffers, int64_t kept,
                     EvictionRule eviction);

    // Adds a step that has run. Returns true if all ranks must choose now, by decide().
    [[nodiscard]] bool add(const StepTimes& step);
    // Returns what this rank has measured since the last choice; bytes and free memory are the
    // caller's to fill in.
    [[nodiscard]] PlacementFacts measured() const;
    // Decides by AGREED, which is the same on all ranks, so that all of them choose the same.
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
