// Chooses how many offloaded chunks to keep in memory, from the measured times of the last steps
// and the free memory. Data path: facts of all ranks -> [here] -> placement control. Pure; every
// rank computes the same.
#pragma once

#include <cstdint>
#include <span>

#include "base/bytes.h"
#include "base/kinds/eviction_rule.h"
#include "plan/choose/choice.h"

namespace dslaunch::plan {

// A rank keeps more chunks in memory only if enough memory then stays free: kPlacementReserve, and
// at least an eighth of the memory that was free before. If less than half of kPlacementReserve is
// free, the rank moves chunks back to disk. The gap between the two limits prevents chunks from
// moving back and forth.
inline constexpr Bytes kPlacementReserve = mib(64);
// The smallest gain that matters, as a fraction of a step's time. The placement changes only for at
// least this gain, and shorter waits for the disk are ignored.
inline constexpr double kPlacementGainMin = 0.05;

// The measured facts of one rank, or of all ranks combined by agreed_facts.
struct PlacementFacts {
    double step_s = 0;
    double noise_s = 0;  // half of the largest difference between steps
    // The time that each lane was busy in a step.
    double compute_s = 0;
    double communication_s = 0;
    double read_s = 0;
    double write_s = 0;
    // The time that a step waited for each disk lane (StepTimes::on_path_s).
    double waited_read_s = 0;
    double waited_write_s = 0;
    Bytes read;  // per step
    Bytes written;
    Bytes free;  // memory that a rank may still use, if all ranks of its host use as much
};

// Returns the facts from which all ranks make the same choice: the longest times, the most bytes
// and the least free memory. Only the communication takes the shortest time, since a longer time
// includes the wait for slower ranks. REQUIRES: RANKS is not empty.
[[nodiscard]] PlacementFacts agreed_facts(std::span<const PlacementFacts> ranks);

// The chunks of a rank that may move, and where they are now.
struct PlacementSpace {
    std::span<const Bytes> chunks;  // memory of each chunk, in the order in which they are kept
    int64_t swap_buffers = 0;       // buffers for the chunks that are not kept
    int64_t kept = 0;               // number of chunks kept now
    bool may_keep_more = true;
    EvictionRule eviction = EvictionRule::kFifo;
};

// The number of chunks to keep in memory. Its cost is the time of a step in seconds: the expected
// time if more chunks are kept than before, otherwise the measured time.
using PlacementChoice = Choice<int64_t, double>;

// Returns the number of chunks to keep in memory:
// - If memory is short: fewer chunks than now.
// - If a step waits for the disk, and a disk lane is the busiest lane: more chunks than now, until
//   memory is used up or the disk lanes are no longer the busiest. The disk time is assumed to be
//   proportional to the bytes that are moved.
// - If a step waits for the disk although a different lane is busier: all chunks that fit, since
//   the work of the busier lane does not hide the transfers.
// - Otherwise: the same number.
[[nodiscard]] PlacementChoice choose_placement(const PlacementFacts& facts,
                                               const PlacementSpace& space);

}  // namespace dslaunch::plan
