#include "plan/choose/placement_choice.h"

#include <fmt/core.h>

#include <algorithm>
#include <string>

#include "base/check.h"
#include "plan/layout/swap_buffers.h"

namespace dslaunch::plan {
namespace {

// Returns the bytes of the chunks that pass between memory and disk in a step if the first KEPT
// chunks are kept in memory.
double moving_bytes(const PlacementSpace& space, int64_t kept) {
    const int64_t turns = std::ssize(space.chunks) - kept;
    const int64_t passing = passing_turns(turns, space.swap_buffers, space.eviction);
    if (passing == 0) return 0;
    double bytes = 0;
    for (const Bytes chunk : space.chunks.subspan(static_cast<size_t>(kept)))
        bytes += static_cast<double>(chunk.value);
    return bytes * static_cast<double>(passing) / static_cast<double>(turns);
}

std::string share_text(const PlacementSpace& space) {
    return fmt::format("{} of {} chunks in memory", space.kept, space.chunks.size());
}

std::string wait_text(const PlacementFacts& facts) {
    if (facts.waited_write_s <= 0) return fmt::format("{:.3g} s for reads", facts.waited_read_s);
    if (facts.waited_read_s <= 0) return fmt::format("{:.3g} s for writes", facts.waited_write_s);
    return fmt::format("{:.3g} s for reads and {:.3g} for writes", facts.waited_read_s,
                       facts.waited_write_s);
}

std::string rate_text(const PlacementFacts& facts) {
    const double busy = std::max(facts.read_s, facts.write_s);
    if (busy <= 0) return "no rate known";
    return fmt::format("{:.3g} GB/s both ways",
                       static_cast<double>((facts.read + facts.written).value) / busy / 1e9);
}

PlacementChoice unchanged(const PlacementFacts& facts, const PlacementSpace& space,
                          const std::string& why) {
    return {space.kept, facts.step_s, fmt::format("unchanged, {}: {}", share_text(space), why)};
}

PlacementChoice give_back(const PlacementFacts& facts, const PlacementSpace& space) {
    int64_t kept = space.kept;
    Bytes free = facts.free;
    while (kept > 0 && free < kPlacementReserve) free += space.chunks[--kept];
    return {kept, facts.step_s,
            fmt::format("moved {} of {} chunks back to disk ({} in memory now): only {} of memory "
                        "are free, but {} should be",
                        space.kept - kept, space.chunks.size(), kept, to_text(facts.free),
                        to_text(kPlacementReserve))};
}

}  // namespace

PlacementFacts agreed_facts(std::span<const PlacementFacts> ranks) {
    DSL_CHECK(!ranks.empty(), "no rank has reported its measurements");
    PlacementFacts all = ranks.front();
    for (const PlacementFacts& rank : ranks) {
        for (double PlacementFacts::*time :
             {&PlacementFacts::step_s, &PlacementFacts::noise_s, &PlacementFacts::compute_s,
              &PlacementFacts::read_s, &PlacementFacts::write_s, &PlacementFacts::waited_read_s,
              &PlacementFacts::waited_write_s})
            all.*time = std::max(all.*time, rank.*time);
        all.communication_s = std::min(all.communication_s, rank.communication_s);
        all.read = std::max(all.read, rank.read);
        all.written = std::max(all.written, rank.written);
        all.free = std::min(all.free, rank.free);
    }
    return all;
}

PlacementChoice choose_placement(const PlacementFacts& facts, const PlacementSpace& space) {
    if (space.kept > 0 && facts.free.value < kPlacementReserve.value / 2)
        return give_back(facts, space);
    const double waited = facts.waited_read_s + facts.waited_write_s;
    const double moving = moving_bytes(space, space.kept);
    if (moving <= 0)
        return unchanged(facts, space, "a step does not move the chunks that are on disk");
    if (waited < kPlacementGainMin * facts.step_s)
        return unchanged(
            facts, space,
            fmt::format(
                "the disk is fast enough: a step of {:.3g} s waited only {:.3g} s for the disk",
                facts.step_s, waited));
    if (!space.may_keep_more)
        return unchanged(facts, space,
                         "an earlier change that kept more chunks in memory gave no speedup");
    const double disk = std::max(facts.read_s, facts.write_s);
    const double other = std::max(facts.compute_s, facts.communication_s);
    const double wanted = disk > other ? 1 - other / disk : 1;  // part of disk time to save
    Bytes room = facts.free - std::max(kPlacementReserve, Bytes{facts.free.value / 8});
    int64_t kept = space.kept;
    double less = 0;
    while (kept < std::ssize(space.chunks) && less < wanted && space.chunks[kept] <= room) {
        room -= space.chunks[kept++];
        less = 1 - moving_bytes(space, kept) / moving;
    }
    const double expected = facts.step_s - less * waited;
    const std::string waits = fmt::format("each step waited {}", wait_text(facts));
    if (less * waited < kPlacementGainMin * facts.step_s)
        return unchanged(facts, space,
                         fmt::format("{}, and {} of memory are free, but more chunks in memory "
                                     "would save only {:.3g} s of {:.3g} s per step",
                                     waits, to_text(facts.free), less * waited, facts.step_s));
    return {kept, expected,
            fmt::format(
                "moved {} of {} chunks from disk into memory (now {} chunks are in memory): {} "
                "({}), and {} of memory were free; expected {:.3g} s per step instead of {:.3g} s",
                kept - space.kept, space.chunks.size(), kept, waits, rate_text(facts),
                to_text(facts.free), expected, facts.step_s)};
}

}  // namespace dslaunch::plan
