// The number of offloaded chunks to keep in memory, from what the last steps measured. Where it
// stands: step times, free memory -> placement choice -> the next step plan
// (OffloadPlan::kept_chunks). Pure.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "base/bytes.h"

namespace dslaunch::plan {

// A rank leaves so much of the memory that is free to others when it takes more chunks into it, or
// an eighth where that is more; with less than half of it free it gives chunks back. The room in
// between keeps chunks from going to and fro.
inline constexpr Bytes kPlacementReserve = mib(64);
// A change must promise this share of a step's time, and less is too little to be waited for.
inline constexpr double kPlacementGainMin = 0.05;

// The facts of one rank, or of all of them together (agreed_facts).
struct PlacementFacts {
    double step_s = 0;
    double noise_s = 0;  // by how much steps differ
    // Lanes were busy for so long in a step.
    double compute_s = 0;
    double communication_s = 0;
    double read_s = 0;
    double write_s = 0;
    // A step waited for so long (StepTimes::on_path_s).
    double waited_read_s = 0;
    double waited_write_s = 0;
    Bytes read;  // in a step
    Bytes written;
    Bytes free;  // memory that a rank may still take, if all of its host take as much
};

// All ranks choose by the longest times, but of communication by the shortest, since who waits for
// others in it is not busy, and by the least free memory. REQUIRES: one rank at least.
[[nodiscard]] PlacementFacts agreed_facts(std::span<const PlacementFacts> ranks);

struct PlacementSpace {
    std::span<const Bytes> chunks;  // memory of each, in the order in which they are kept
    int64_t swap_buffers = 0;       // chunks that need not move though they are not kept
    int64_t kept = 0;               // now
    bool may_keep_more = true;
};

struct PlacementChoice {
    int64_t kept = 0;
    double expected_step_s = 0;  // where more are kept; else as measured
    std::string reason;          // one line
};

// As many chunks more are kept as fit where a step waits for the disk and memory is free, but no
// more than bring the busier disk lane down to the busier of the others, each chunk taking its
// share of the measured time along. All that fit are kept where the disk lanes are not the busiest
// and the step waits for them all the same, for what they do cannot be hidden. Fewer are kept where
// memory is short; else as many as before.
[[nodiscard]] PlacementChoice choose_placement(const PlacementFacts& facts,
                                               const PlacementSpace& space);

}  // namespace dslaunch::plan
