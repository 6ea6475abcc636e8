// Updates that may lag (ZenFlow, arXiv:2505.12242). A unit is kUnitNumel neighbouring elements of a
// parameter, counted from its first element. The important units of each parameter are updated in
// every step. The other units are called the rest: their gradients are added up and become one
// update every few steps. The important units are chosen within each block of the layout. No shard
// cuts a block, so the choice does not depend on the number of ranks. Pure.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string_view>

namespace dslaunch::plan {

// The treatment of the rest in a step.
enum class Lag : uint8_t {
    kWhole,    // all units are updated. The update of the rest uses the mean of this step's
               // gradients and all waiting gradients
    kPartial,  // this step's gradients of the rest are added to its waiting gradients
    kLate,     // while the step computes, the waiting gradients of the rest become an update,
               // which takes effect with the step's other updates. This step's gradients of the
               // rest begin to wait
};
inline constexpr int kLags = 3;

// Returns a description of LAG, such as "everything".
[[nodiscard]] constexpr std::string_view lag_name(Lag lag) {
    switch (lag) {
        case Lag::kWhole:
            return "everything";
        case Lag::kPartial:
            return "important units";
        case Lag::kLate:
            return "important units, the rest beside";
    }
    return "unknown";
}

inline constexpr int64_t kUnitNumel = 256;

// The rules by which updates lag, the same for all steps of a job, and their effect in one step.
struct LagPlan {
    bool on = false;
    bool overlaps = false;   // some steps are kLate
    double important = 0.1;  // fraction of a block's units that are important; at least one unit
    int64_t unit_numel = kUnitNumel;  // REQUIRES: divides the layout's block_numel
    // The fields below differ from step to step.
    Lag kind = Lag::kWhole;
    bool selects = false;  // important units are chosen again, from this step's gradients
    bool fills = false;    // this step's gradients are the last that the next late update uses

    bool operator==(const LagPlan&) const = default;
};

// Returns how many of UNITS units are important.
[[nodiscard]] inline int64_t important_units(int64_t units, double part) {
    const auto wanted = static_cast<int64_t>(part * static_cast<double>(units) + 1e-9);
    return std::min(units, std::max<int64_t>(1, wanted));
}

}  // namespace dslaunch::plan
