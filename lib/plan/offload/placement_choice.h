// The number of offloaded chunks to keep in memory, by the measurements of the last steps. Data
// path: step times, free memory -> placement choice -> the next step plan
// (OffloadPlan::kept_chunks). Pure.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "base/bytes.h"
#include "base/kinds/eviction_rule.h"

namespace dslaunch::plan {

// The free memory that a rank leaves when it keeps more chunks, or an eighth of the free memory if
// that is more. With less than half of this free it gives chunks back. The gap keeps chunks from
// moving back and forth.
inline constexpr Bytes kPlacementReserve = mib(64);
// The least gain that a change must promise, and the least wait for disks that matters, as a share
// of a step's time.
inline constexpr double kPlacementGainMin = 0.05;

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

// All ranks choose by the longest times, but by the shortest time of communication, in which a rank
// that waits for others is not busy, and by the least free memory. REQUIRES: RANKS is not empty.
[[nodiscard]] PlacementFacts agreed_facts(std::span<const PlacementFacts> ranks);

struct PlacementSpace {
    std::span<const Bytes> chunks;  // memory of each chunk, in the order in which they are kept
    int64_t swap_buffers = 0;       // through which chunks that are not kept pass
    int64_t kept = 0;               // number of chunks kept now
    bool may_keep_more = true;
    EvictionRule eviction = EvictionRule::kFifo;
};

struct PlacementChoice {
    int64_t kept = 0;
    double expected_step_s = 0;  // if more are kept; else as measured
    std::string reason;          // one line
};

// If a step waits for the disk and memory is free, as many more chunks are kept as fit, but no more
// than bring the busier disk lane down to the busier of the other lanes, each chunk counted with
// its share of the measured time. All that fit are kept if the step waits for disk lanes that are
// not the busiest, for their work cannot be hidden. Fewer are kept if memory is short; else as many
// as before.
[[nodiscard]] PlacementChoice choose_placement(const PlacementFacts& facts,
                                               const PlacementSpace& space);

}  // namespace dslaunch::plan
