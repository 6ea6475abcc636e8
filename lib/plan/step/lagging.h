// Updates that may lag (ZenFlow, arXiv:2505.12242): the important units of each parameter are
// updated in every step; the gradients of the rest are added up and become one update every few
// steps. A unit is kUnitNumel neighbouring elements of a parameter, counted from its first one;
// units are chosen within each block of the layout. No shard cuts a block, so the choice is the
// same at every number of ranks. Pure.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string_view>

namespace dslaunch::plan {

// The step's work on the rest.
enum class Lag : uint8_t {
    kWhole,    // it is updated, by the mean of what waited and this step's gradients; without
               // lagging, and where none wait, this is as the important units are
    kPartial,  // its gradients are added to those that wait
    kLate,     // the gradients that waited become an update beside this step's computation, which
               // lands with the step's own updates; this step's gradients then wait
};
inline constexpr int kLags = 3;

// Returns "everything" and the like.
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

struct LagPlan {
    bool on = false;
    bool overlaps = false;   // some steps are kLate
    double important = 0.1;  // part of the units of a block that are important; at least one
    int64_t unit_numel = kUnitNumel;  // REQUIRES: divides the layout's block_numel
    // The fields from here on differ from step to step.
    Lag kind = Lag::kWhole;
    bool selects = false;  // important units are chosen again, by this step's gradients
    bool fills = false;    // this step's gradients are the last ones of a late update

    bool operator==(const LagPlan&) const = default;
};

// Returns the number of important units among UNITS.
[[nodiscard]] inline int64_t important_units(int64_t units, double part) {
    const auto wanted = static_cast<int64_t>(part * static_cast<double>(units) + 1e-9);
    return std::min(units, std::max<int64_t>(1, wanted));
}

}  // namespace dslaunch::plan
