#include "plan/choose/cut_choice.h"

#include <algorithm>

#include "base/check.h"

namespace dslaunch::plan {

namespace {

int64_t largest_gap(const std::vector<CutPlace>& places, int64_t live_max,
                    int64_t parameter_numel) {
    int64_t gap = 0;
    int64_t previous = 0;
    for (const CutPlace& place : places) {
        if (place.live_values > live_max) continue;
        gap = std::max(gap, place.parameter_numel_before - previous);
        previous = place.parameter_numel_before;
    }
    return std::max(gap, parameter_numel - previous);
}

// Returns a limit on the number of live values at a cut: the smallest limit that leaves enough
// places, so that no piece between them is too large. A piece may have at most twice the parameters
// of the largest piece without a limit, or a sixteenth of all parameters if this is more.
int64_t live_threshold(const std::vector<CutPlace>& places, int64_t parameter_numel) {
    std::vector<int64_t> levels;
    for (const CutPlace& place : places) levels.push_back(place.live_values);
    std::sort(levels.begin(), levels.end());
    levels.erase(std::unique(levels.begin(), levels.end()), levels.end());
    const int64_t finest = largest_gap(places, levels.back(), parameter_numel);
    const int64_t wanted = std::max(2 * finest, parameter_numel / 16);
    for (const int64_t level : levels)
        if (largest_gap(places, level, parameter_numel) <= wanted) return level;
    return levels.back();
}

// Groups the places that have the same parameters before them. Returns from each group the place
// with the fewest live values (the first of several). Leaves out places with more than LIVE_MAX
// live values.
std::vector<CutPlace> best_of_groups(const std::vector<CutPlace>& places, int64_t live_max) {
    std::vector<CutPlace> best;
    for (const CutPlace& place : places) {
        if (place.live_values > live_max) continue;
        if (best.empty() || best.back().parameter_numel_before != place.parameter_numel_before) {
            best.push_back(place);
        } else if (place.live_values < best.back().live_values) {
            best.back() = place;
        }
    }
    return best;
}

std::vector<int64_t> whole_layers(const std::vector<CutPlace>& places, int64_t parameter_numel) {
    const int64_t piece_numel_min = std::max<int64_t>(1, parameter_numel / kSegmentsAutoMax);
    std::vector<int64_t> cuts;
    int64_t previous = 0;
    for (const CutPlace& place : best_of_groups(places, live_threshold(places, parameter_numel))) {
        const bool heavy_before = place.parameter_numel_before - previous >= piece_numel_min;
        const bool heavy_after = parameter_numel - place.parameter_numel_before > 0;
        if (!heavy_before || !heavy_after) continue;
        cuts.push_back(place.position);
        previous = place.parameter_numel_before;
    }
    return cuts;
}

}  // namespace

std::vector<int64_t> choose_cuts(const std::vector<CutPlace>& places, int64_t parameter_numel,
                                 int64_t segments) {
    DSL_CHECK(segments >= 0, "a model cannot have {} segments", segments);
    if (places.empty() || segments == 1) return {};
    if (segments == 0) return whole_layers(places, parameter_numel);
    const auto count = static_cast<int64_t>(places.size());
    const int64_t cuts_wanted = std::min(segments - 1, count);
    std::vector<int64_t> cuts;
    // Each cut uses the place that is nearest to the cut's share of the parameters; among equally
    // near places, it uses the place with the fewest live values. It leaves enough places for the
    // later cuts.
    int64_t first = 0;
    for (int64_t cut = 0; cut < cuts_wanted; ++cut) {
        const int64_t last = count - (cuts_wanted - cut);
        const double share = static_cast<double>(parameter_numel) * static_cast<double>(cut + 1) /
                             static_cast<double>(cuts_wanted + 1);
        int64_t best = first;
        const auto cost = [&](int64_t i) {
            const CutPlace& place = places[i];
            const double distance =
                std::abs(static_cast<double>(place.parameter_numel_before) - share);
            return std::pair(distance, place.live_values);
        };
        for (int64_t i = first + 1; i <= last; ++i)
            if (cost(i) < cost(best)) best = i;
        cuts.push_back(places[best].position);
        first = best + 1;
    }
    return cuts;
}

}  // namespace dslaunch::plan
