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

// A rank that keeps more chunks leaves this reserve free, or an eighth of the free memory if that
// is more. If less than half of the reserve is free, the rank gives chunks back to disk. The gap
// between the two limits keeps chunks from moving back and forth.
inline constexpr Bytes kPlacementReserve = mib(64);
// The smallest gain for which the choice changes, and the shortest wait for disks that matters, as
// a fraction of a step's time.
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

// Returns the facts from which all ranks choose: the longest times and the least free memory. For
// communication, it is the shortest time, since a longer time includes the wait for slower ranks.
// REQUIRES: RANKS is not empty.
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

// Returns how many chunks to keep in memory:
// - If a step waits for the disk and memory is free, more chunks than now: as many as fit, but
//   only until the disk lanes take no longer than the computation or the communication. Each chunk
//   counts with its share of the measured time.
// - If a step waits for the disk although no disk lane is the busiest lane, all chunks that fit,
//   since other work cannot hide these transfers.
// - If memory is short, fewer chunks.
// - Otherwise the same number.
[[nodiscard]] PlacementChoice choose_placement(const PlacementFacts& facts,
                                               const PlacementSpace& space);

}  // namespace dslaunch::plan
